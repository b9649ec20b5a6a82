"""The kinds of plans that are stored, and how they are read again."""

from collections.abc import Mapping

from duckdb_dp.domain.workload import Workload
from duckdb_dp.linop import Array
from duckdb_dp.plan.base import Plan
from duckdb_dp.plan.hdmm.marginals import MarginalsPlan
from duckdb_dp.plan.hdmm.mixtures import MixturePlan
from duckdb_dp.plan.hdmm.plans import JointPlan, ProductPlan
from duckdb_dp.plan.searched import SearchedPlan, description
from duckdb_dp.plan.smasher import SubspacePlan

STORED: dict[str, type[SearchedPlan]] = {
    "SubspacePlan": SubspacePlan,
    "ProductPlan": ProductPlan,
    "JointPlan": JointPlan,
    "MarginalsPlan": MarginalsPlan,
    "MixturePlan": MixturePlan,
}
"""The kinds of plans that are stored, by the name that they are stored under, which is the class's."""


def restore(workload: Workload, arrays: Mapping[str, Array]) -> Plan:
    """The plan that ``Plan.dump`` has taken apart.

    Raises:
        DPError: arrays of another version.

    Privacy: post-processing of public queries.
    """
    described = description(arrays)
    return STORED[described["kind"]].load(workload, described, arrays)
