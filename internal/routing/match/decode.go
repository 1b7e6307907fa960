package match

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// Decode returns the variable "body": nil for null and for invalid JSON. Objects are
// map[string]any, with the last of members of one name. Numbers are [json.Number].
// encoding/json bounds the depth at 10,000.
func Decode(body []byte) any {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil
	}
	return v
}

// adapter converts results of [Decode] on first use, and leaves the rest to cel-go.
type adapter struct{ types.Adapter }

func newAdapter() adapter { return adapter{types.DefaultTypeAdapter} }

// NativeToValue implements types.Adapter.
func (a adapter) NativeToValue(value any) ref.Val {
	switch v := value.(type) {
	case map[string]any:
		return types.NewStringInterfaceMap(a, v)
	case []any:
		return types.NewDynamicList(a, v)
	case json.Number:
		return number(v.String())
	}
	return a.Adapter.NativeToValue(value)
}

// number returns integers of up to 64 bits exactly, and all other numbers as the nearest
// double. CEL compares across the three types.
func number(text string) ref.Val {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return types.Int(n)
	}
	if n, err := strconv.ParseUint(text, 10, 64); err == nil {
		return types.Uint(n)
	}
	f, _ := strconv.ParseFloat(text, 64) // if too large ±Inf, and an error saying so
	return types.Double(f)
}
