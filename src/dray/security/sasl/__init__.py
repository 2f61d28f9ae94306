"""SASL: mechanisms of both sides, which take bytes and give bytes, and the server's session around them."""
