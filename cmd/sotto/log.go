package main

import (
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
)

// relayKeyAttr names the one attribute in which a key is shown whole: clients pin
// it.
const relayKeyAttr = "relay_key"

// newLogger returns a logger that shortens keys and addresses.
func newLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	o := &slog.HandlerOptions{ReplaceAttr: shortenKeys(regexp.MustCompile(`[0-9a-fA-F]{64}`))}
	switch level {
	case "debug":
		o.Level = slog.LevelDebug
	case "info":
		o.Level = slog.LevelInfo
	case "warn":
		o.Level = slog.LevelWarn
	case "error":
		o.Level = slog.LevelError
	default:
		return nil, fmt.Errorf("--log-level is debug, info, warn or error, not %q", level)
	}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return nil, fmt.Errorf("--log-format is text or json, not %q", format)
}

// shortenKeys cuts the hexadecimal keys in attributes, whatever their type, to 8
// digits.
func shortenKeys(keys *regexp.Regexp) func([]string, slog.Attr) slog.Attr {
	return func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == relayKeyAttr {
			return a
		}
		if s := a.Value.String(); keys.MatchString(s) {
			a.Value = slog.StringValue(keys.ReplaceAllStringFunc(s, func(key string) string {
				return strings.ToLower(key[:8]) + "…"
			}))
		}
		return a
	}
}
