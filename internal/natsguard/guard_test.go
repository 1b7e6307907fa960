package natsguard

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

// FuzzGuarded checks that pieces of any size are followed as the whole is.
func FuzzGuarded(f *testing.F) {
	f.Add([]byte("INFO {}\r\nMSG x 1 3\r\nMSG\r\nPING\r\nHMSG x 1 2 4\r\nabcd\r\n"), uint8(3))
	f.Add([]byte("MSG x 1 99999999\r\n"), uint8(1))
	f.Add([]byte("MSG x 1 0\n\nMSG"), uint8(0))
	f.Fuzz(func(t *testing.T, stream []byte, chunk uint8) {
		whole, cut := guarded{}, guarded{}
		want := whole.check(stream)
		var got error
		for rest := stream; len(rest) > 0 && got == nil; {
			n := min(int(chunk)+1, len(rest))
			got = cut.check(rest[:n])
			rest = rest[n:]
		}
		assert.Equal(t, fmt.Sprint(want), fmt.Sprint(got))
		assert.LessOrEqual(t, whole.skip, maxMessage+1)
		if want == nil {
			assert.Equal(t, whole.skip, cut.skip)
			assert.Equal(t, whole.tail, cut.tail)
			assert.Equal(t, string(whole.line), string(cut.line))
		}
	})
}
