"""One cluster for each backend, for all tests of this folder."""

import pytest

from tests.conformance.cluster import cluster


@pytest.fixture(scope="package", params=["nft", "legacy"])
def site(request):
    with cluster(request.param) as made:
        yield made
