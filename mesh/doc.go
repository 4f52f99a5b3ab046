// Package mesh links relays of different operators (spec mesh.md): they find one
// another, carry messages to wherever a recipient is connected, and hand over the mail
// of a client that has moved. It trusts none of them: where a client is, it believes
// the client alone; a relay that withholds can delay, and not read or take.
//
// A [Mesh] is the Forwarder of a relay.Server, which knows no more of it than that,
// and what the brep dialect gives the connections of other relays to. It carries
// messages of relay.RealmBrep.
//
//	m := mesh.New(&mesh.Config{Identity: id, Dial: dial, Peers: peers})
//	server := &relay.Server{Inbox: store, Mesh: m}
//	mux.Handle("/", ws.Handler(server.Speak(brep.Dialect{Identity: id, Mesh: m}), nil))
//	go m.Run(ctx, server)
//
// All that a Mesh knows is under one lock. What it does because of that (frames to
// other relays, messages given back to the server) are effects: they wait in one
// queue, in order, and are done by one goroutine without the lock. None blocks. So
// whatever calls a Mesh returns at once, and what is sent or given back for one
// recipient keeps its order.
package mesh
