// Package settings finds the value of a setting: it has one order for all commands.
//
// A flag that was given comes first, then the environment (--grpc-address as $LOCKET_GRPC_ADDRESS), then a file, then the flag's default.
// The file of `locket server` is a JSON object (WithConfig). The file of the commands that talk to servers has contexts, named ways to
// connect (WithContexts). An empty variable is ignored, an empty member of the JSON file is not; a flag that is given as empty hides the
// environment and the file.
//
// Callers may rely on this: LookUp returns the source of a value, so that an error can name it.
package settings
