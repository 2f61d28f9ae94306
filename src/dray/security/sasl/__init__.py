"""SASL on the server's side: mechanisms that take bytes and give steps, and the session around them."""
