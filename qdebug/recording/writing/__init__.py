"""Write recordings: payloads, tables and sinks. Also pack finished recordings and rebuild interrupted ones."""
