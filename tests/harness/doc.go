// Package harness is shared by the tests of the whole program: fresh databases of each engine,
// requests as one line, and waiting for a condition. The tests are in the folders beside
// it: rest (the HTTP interface, sentence by sentence), robustness (kills, outages, histories), run
// (`locket run`), program (the server and the command line as processes, the examples, the
// documents). A process to test comes from package fixtures.
//
// A function without an error result ends the test on an error.
package harness
