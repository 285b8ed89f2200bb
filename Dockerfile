# pykubeproxy in Debian trixie, without a compiler. Any image with Debian trixie in it will do as the base:
#   podman build --build-arg BASE=localhost/trixie -t pykubeproxy .
ARG BASE=debian:trixie-slim

FROM ${BASE} AS build
ARG DEBIAN_FRONTEND=noninteractive
# The compiler and the Python headers are for python-iptables, which comes as source only.
RUN apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends gcc libc6-dev libxtables-dev python3-dev python3-venv >/dev/null
WORKDIR /src
COPY requirements.lock ./
RUN python3 -m venv /tool && python3 -m venv --without-pip /opt/pykubeproxy
COPY pyproject.toml README.md LICENSE ./
COPY pykubeproxy pykubeproxy
# The lock file as a constraint: what the program needs, in the versions that were tested, and nothing of the tests.
# Where pip needs settings of the site (an index, a CA), they may be given as secrets; they leave no trace.
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf --mount=type=secret,id=ca.crt,target=/run/ca.crt \
    PIP_CONSTRAINT=/src/requirements.lock /tool/bin/pip --python /opt/pykubeproxy/bin/python install \
      --quiet --disable-pip-version-check --no-cache-dir --no-compile .
# Of the kubernetes package only configuration, TLS and tokens are used. Its 700 models, its API classes and its second
# client for asyncio are loaded on demand, which never comes: 150 MB with their byte code.
RUN set -eu; cd /opt/pykubeproxy/lib/python3*/site-packages; \
    rm -rf kubernetes/aio; \
    for part in models api; do find kubernetes/client/$part -name '*.py' ! -name __init__.py -delete; done; \
    /tool/bin/pip --python /opt/pykubeproxy/bin/python uninstall --quiet --yes \
      aiohttp aiohttp-retry aiosignal aiohappyeyeballs frozenlist multidict propcache yarl; \
    find . -name '*.so' -exec strip --strip-unneeded {} +; \
    /opt/pykubeproxy/bin/python -m compileall -q -j 0 .

FROM ${BASE}
ARG DEBIAN_FRONTEND=noninteractive
# iptables brings both kinds of programs, legacy and nft; kmod lets the init container load modules.
RUN apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends python3 iptables kmod >/dev/null \
 && apt-get clean \
 && find /usr/share/doc -type f ! -name copyright -delete \
 && rm -rf /var/lib/apt/lists/* /var/cache/* /var/log/* /usr/share/man/* /usr/share/locale/* /usr/share/info/*
COPY --from=build /opt/pykubeproxy /opt/pykubeproxy
RUN ln -s /opt/pykubeproxy/bin/pykubeproxy /opt/pykubeproxy/bin/kube-proxy /usr/local/bin/ \
 && /usr/local/bin/kube-proxy --version \
 && /opt/pykubeproxy/bin/python -c "import iptc, pykubeproxy.daemon, pykubeproxy.watch.client"
# Nothing is written at run time: byte code is there already.
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 LC_ALL=C.UTF-8
LABEL org.opencontainers.image.title="pykubeproxy" \
      org.opencontainers.image.description="A kube-proxy replacement in Python: the same iptables rules" \
      org.opencontainers.image.licenses="Apache-2.0"
# uid 0, because xtables.lock is root's and a pod has no ambient capabilities. NET_ADMIN and NET_RAW are all that it needs.
USER 0:0
ENTRYPOINT ["/usr/local/bin/kube-proxy"]
