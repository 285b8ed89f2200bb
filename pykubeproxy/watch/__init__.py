"""Where objects come from: an API server or manifest files, decoded into small structs."""
