// Package imports holds the test of the project's import graph: which package
// may import which, that a relay reaches no cryptography, and which modules of
// others an embedder links. It has no code of its own.
package imports
