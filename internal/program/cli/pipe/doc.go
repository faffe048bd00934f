// Package pipe is the protocol of `locket keychain`: a program in any language starts it, and has its claims kept alive over the two ends
// of a pipe. docs/keychain.md describes the protocol to those who write such a program.
//
// A byte goes this way: framer and input find the JSON objects in the stream, message reads each and writes its answer, handler carries it
// out with package keychain, and output writes in the background. Parent watches the program itself.
//
// Callers may rely on this: every message gets exactly one answer, or a notice if it cannot be told which it was; a message of up to
// MaxMessage bytes and MaxDepth brackets is taken; a program that does not read holds up itself and no claim; when the program ends,
// however it ends, its claims are ended.
package pipe
