package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSize(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Size{
		"0": 0, "512": 512, "512B": 512, "1kB": 1000, "1KiB": 1024, "2 MB": 2e6, "64MiB": 64 << 20,
		"10GiB": 10 << 30, "3GB": 3e9, "1TB": 1e12, "1TiB": 1 << 40, "-1": -1, " 7 ": 7,
		"9223372036854775807": 1<<63 - 1,
	} {
		var got Size
		require.NoError(t, got.UnmarshalText([]byte(text)), text)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "B", "1.5MiB", "1mb", "1KB", "ten", "1 2", "0x10", "1e3"} {
		require.ErrorContains(t, new(Size).UnmarshalText([]byte(text)), "not a size", text)
	}
	for _, text := range []string{"9223372036854775808", "10000000000GB", "-10000000000GB"} {
		require.ErrorContains(t, new(Size).UnmarshalText([]byte(text)), "too large", text)
	}
}

func TestSizePrints(t *testing.T) {
	t.Parallel()
	for size, want := range map[Size]string{
		0: "0", 1: "1", 1000: "1kB", 1024: "1KiB", 1500: "1500", 10 << 30: "10GiB", 5e9: "5GB", -1: "-1", -2048: "-2KiB",
	} {
		assert.Equal(t, want, size.String())
		text, err := size.MarshalText()
		require.NoError(t, err)
		assert.Equal(t, want, string(text))
	}
}
