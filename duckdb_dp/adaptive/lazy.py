"""Estimates of many marginals, updated lazily: a measurement changes only the marginals that contain what was measured."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from duckdb_dp.adaptive.candidates import Above
from duckdb_dp.domain.domain import Clique
from duckdb_dp.linop import Array
from duckdb_dp.reconstruct.grem import ResidualEstimates
from duckdb_dp.reconstruct.measurement import LinearMeasurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """Marginals as sums of estimated residuals, held and updated lazily, or computed when they are read.

    Attributes:
        components: the estimated residuals.
        above: finds the targets above measured residuals.
        held: marginals of the targets, which are kept up to date; none if they do not fit into memory.

    Privacy: post-processing.
    """

    components: ResidualEstimates
    above: Above
    held: Mapping[Clique, Array]

    @classmethod
    def of(cls, components: ResidualEstimates, cliques: Collection[Clique], memory: float) -> "Estimates":
        """Estimates that hold the marginals of the cliques if these take at most ``memory`` bytes, otherwise none."""
        domain = components.domain
        fits = 8 * sum(domain.cells(clique) for clique in cliques) <= memory
        held = {clique: components.marginal(clique) for clique in cliques} if fits else {}
        return cls(components=components, above=Above(cliques), held=held)

    def marginal(self, clique: Clique) -> Array:
        """The estimate of one marginal."""
        return self.held[clique] if clique in self.held else self.components.marginal(clique)

    def updated(self, noisy: Iterable[LinearMeasurement]) -> "Estimates":
        """These with more measurements: only marginals above a measured residual change, by Recon(z' - z).

        Source: [AIM+GReM] Prop. 4.2.
        """
        measured = tuple(noisy)
        old, new = self.components, self.components.added(measured)
        changes = ResidualEstimates(
            domain=old.domain,
            values={
                tau: new.values[tau] - old.values[tau] if tau in old.values else new.values[tau]
                for tau in {one.clique for one in measured} & new.values.keys()
            },
            precisions={},
        )
        held = dict(self.held)
        if held:
            held |= {clique: held[clique] + changes.marginal(clique) for clique in self.above(changes.values)}
        return replace(self, components=new, held=held)
