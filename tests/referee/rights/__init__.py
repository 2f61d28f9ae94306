"""Who may do what: every API as clients with all kinds of rights, the same of Apache Kafka and of Dray."""
