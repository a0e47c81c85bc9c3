"""The data pass of a planned job."""

from __future__ import annotations

from pipeline.graph import DataPass, data_pass
from pipeline.planning import Job
from pipeline.stages import Reading


def job_pass(
    job: Job, reading: Reading, allowed_bytes: int, drop_barren: bool = True, by_row: bool = False
) -> DataPass:
    """Wire the data pass over all of a job's sub-networks, in the groups that the plan made."""
    sub_networks = job.decomposition.sub_networks
    return data_pass(job.dataset, reading, sub_networks, job.groups, drop_barren, by_row, allowed_bytes)
