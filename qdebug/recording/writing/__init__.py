"""Write recordings: payloads, tables, sinks; pack finished ones and rebuild interrupted ones."""
