package jsontext

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCanonical(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"b":1.0,"a":[ 1e2 , -0 ]}`:              `{"a":[100,0],"b":1}`,
		`9007199254740993`:                        `"9007199254740993"`,
		`[9007199254740992,0.1,1e21]`:             `[9007199254740992,0.1,1e+21]`,
		`{"9007199254740993":"9007199254740993"}`: `{"9007199254740993":"9007199254740993"}`,
		`"a\"9007199254740993"`:                   `"a\"9007199254740993"`,
		`[1e400,1e-400,0.30000000000000000001]`:   `["1e400","1e-400","0.30000000000000000001"]`,
		`1e99999999999999999999`:                  `"1e99999999999999999999"`,
	} {
		got, err := Canonical([]byte(in))
		require.NoError(t, err, in)
		require.Equal(t, want, string(got))
	}
	for _, bad := range []string{``, `{`, `{"a":1,"a":1}`, `"\ud800"`, "\"\xff\"", `1e`, `01`, `1 2`, `tru9007199254740993`} {
		_, err := Canonical([]byte(bad))
		require.Error(t, err, bad)
	}
}

func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{`{"a":[1,2.50,"x",null,true]}`, `9007199254740993`, `"\u00e9\ud83d\ude00"`, `[[[[]]]]`, `{"a":-1e-7}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		once, err := Canonical(raw)
		if err != nil {
			return
		}
		require.True(t, json.Valid(once), "%q", once)
		twice, err := Canonical(once)
		require.NoError(t, err)
		require.Equal(t, string(once), string(twice))
	})
}
