"""KubeProxyConfiguration documents and flags become frozen Options."""
