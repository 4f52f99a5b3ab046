package client

import (
	"encoding/json"
	"fmt"

	"github.com/sotto-relay/sotto/crypto"
)

// A Content is what a message says. It is made by [Text], [JSON], [File] or
// [Raw], and may be sent more than once.
type Content struct {
	crypto.Content
	err error
}

// Text is a text. Send refuses what is not UTF-8.
func Text(s string) Content {
	return Content{Content: crypto.Content{Type: crypto.Text, Data: []byte(s)}}
}

// JSON is v as encoding/json marshals it. If that fails, Send returns the error.
func JSON(v any) Content {
	data, err := json.Marshal(v)
	if err != nil {
		return Content{err: fmt.Errorf("client: content: %w", err)}
	}
	return Content{Content: crypto.Content{Type: crypto.JSON, Data: data}}
}

// File is a small file, whole: its name, without a directory, and its bytes,
// which are not copied. Send refuses a name that [crypto.SafeFileName] does. For
// large files there is [Client.SendFile].
func File(name string, data []byte) Content {
	return Content{Content: crypto.Content{Type: crypto.File, Name: name, Data: data}}
}

// Raw is bytes with a meaning of the application's own. They are not copied.
func Raw(data []byte) Content {
	return Content{Content: crypto.Content{Type: crypto.Raw, Data: data}}
}
