// Package policy has policies ready to use as relay.Server.Policy: a set of keys
// ([AllowKeys], [KeyFile]), tokens ([Tokens], [StaticTokens]), everybody ([Open]),
// and several at once ([All]).
//
// They decide who may claim an address, which is where a session of a dialect
// with names logs in. A dialect without names claims none, so these policies let
// everybody use it: a program that serves one beside them sets Policy.Connect
// too. What sessions send, publish and join is left to functions of the
// program's own, put together with these by All.
//
// It is no store of accounts and issues no tokens; it ends no sessions either: a
// program that revokes something calls relay.Server.Kick.
//
// The policies may be called concurrently, as a relay does, and used by several
// servers. A refusal carries relay.CodeNotAuthenticated (3) when another token
// could help and relay.CodeDenied (17) when nothing would (spec native.md,
// "Codes"), with a sentence that says nothing of the set or the token.
package policy
