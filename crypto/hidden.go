package crypto

// A hidden value is a secret in a closure. Reflection cannot look inside, so no
// verb of fmt, no encoder and no dump shows it, however deep in somebody's struct
// it is; a method could not see to that, since fmt calls none for unexported
// fields, and prints what pointers point to for a verb that does not fit.
type hidden[T any] func() T

func hide[T any](secret T) hidden[T] { return func() T { return secret } }
