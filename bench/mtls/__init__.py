"""What mTLS costs a control plane, beside the same mesh without it: `python -m bench mtls`."""
