package transport

import "context"

type tokenContext struct{}

// WithToken returns a context with which a [Dialer] presents a credential with the
// connection, if its medium has a way to: package ws does, as Authorization: Bearer.
func WithToken(ctx context.Context, token string) context.Context {
	return context.WithValue(ctx, tokenContext{}, token)
}

// TokenOf returns the credential that a Dialer was given, or "".
func TokenOf(ctx context.Context) string {
	token, _ := ctx.Value(tokenContext{}).(string)
	return token
}
