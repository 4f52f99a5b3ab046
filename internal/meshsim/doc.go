// Package meshsim simulates meshes: up to a thousand relays, as they are, and ten
// clients on each, in memory and in a bubble of fake time. It measures what finding a
// client costs, how long relays take to find one another, and what becomes of messages
// while links break, relays are killed and clients move. It has no code of its own.
//
//	go test ./internal/meshsim -v -relays=10,30,100 -seed=7
//
// prints the rows of the table in docs/mesh.md. A seed stands for the same relays,
// clients, messages and faults, not for the same run: relays also draw at random
// themselves.
package meshsim
