# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Quickstart: learn a Bayesian network from a table with holes
#
# We simulate data from the alarm network, blank half the entries of a fifth of its variables, and learn the parameters
# back on a local Dask cluster.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

from cluster import connect
from pipeline import learn, load_network, plan, score, simulate

work = Path(tempfile.mkdtemp())
network = load_network("alarm")
simulation = simulate(network, work / "data", rows=50_000, partitions=4, missing=0.5, missing_variables=0.2, seed=3)
simulation.missing_variables

# %% [markdown]
# ## Connect
# `connect()` starts worker processes on this machine; give it a scheduler's address to use a cluster. Its dashboard
# shows the stages by name while they run.

# %%
client = connect("local", workers=2)
client.dashboard_link

# %% [markdown]
# ## Plan
# What will be read, counted and solved, before any of it is done. Variables that are always observed cut the problem
# into independent sub-networks; most are complete and need no iteration at all.

# %%
print(plan(network, work / "data", client=client))

# %% [markdown]
# ## Learn

# %%
result = learn(network, work / "data", prior=2.0, restarts=2, seed=1, client=client, output=work / "learned")
print(f"{result.log_likelihood:.1f} nats over {result.report['rows']:,} rows, converged: {result.converged}")
result.report["seconds"]

# %% [markdown]
# ## The sub-networks as a table

# %%
records = pd.DataFrame(result.sub_networks)
records = records.assign(variables=records.variables.str.join(", "), boundary=records.boundary.str.join(", "))
incomplete = records[records.instances > 0]
incomplete[["variables", "boundary", "instances", "iterations", "converged", "log_likelihood", "seconds"]]

# %% [markdown]
# ## Likelihood curves
# Every sub-network converges by itself. What each is short of its final log likelihood, by iteration:

# %%
figure, axis = plt.subplots(figsize=(8, 4))
for record in result.sub_networks:
    if record.iterations:
        short = [max(record.history[-1] - value, 1e-9) for value in record.history[:-1]]
        axis.plot(range(len(short)), short, label=", ".join(record.variables))
axis.set(xlabel="iteration", ylabel="nats below the final log likelihood", yscale="log")
axis.legend(fontsize="small")
figure.tight_layout()

# %% [markdown]
# ## Use the learned network
# It is a pgmpy model.

# %%
from pgmpy.inference import VariableElimination

inference = VariableElimination(result.network)
print(inference.query(["LVFAILURE"], evidence={"HISTORY": "TRUE", "CVP": "HIGH"}))

# %% [markdown]
# How well does it explain data that it has not seen, beside the network that made them?

# %%
simulate(network, work / "test", rows=20_000, missing=0.1, seed=99)
learned = score(work / "learned" / "network.bif", work / "test", client=client)
true = score(network, work / "test", client=client)
pd.DataFrame({"learned": learned.as_dict(), "true": true.as_dict()})

# %%
client.close()
