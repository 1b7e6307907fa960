package audit

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// commandTimeout bounds one call of a signing command.
	commandTimeout = 10 * time.Second
	// maxAnswer bounds each of its outputs: a signature has 88 bytes.
	maxAnswer = 4 << 10
)

// commandEnv are the environment variables that every signing command gets. The others may be
// secrets of the relay or of its sinks.
var commandEnv = []string{"PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR"}

// environmentOf is the part of the relay's environment with commandEnv and the named variables.
func environmentOf(named []string) []string {
	env := []string{} // not nil, which would be the whole environment
	for _, name := range slices.Concat(commandEnv, named) {
		if value, given := os.LookupEnv(name); given {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// signByCommand signs with a program, called without a shell: it gets the message on its
// standard input, and prints the base64 of the 64-byte Ed25519 signature. Of the environment
// it gets what environmentOf has. The program is never called twice at once: a token such as
// SoftHSM's may not be found while another process logs in.
func signByCommand(command, named []string) func(context.Context, []byte) ([]byte, error) {
	var one sync.Mutex
	return func(ctx context.Context, msg []byte) ([]byte, error) {
		one.Lock()
		defer one.Unlock()
		ctx, cancel := context.WithTimeout(ctx, commandTimeout)
		defer cancel()
		cmd := exec.CommandContext(ctx, command[0], command[1:]...)
		cmd.Env = environmentOf(named)
		var out, complaint bounded
		cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(msg), &out, &complaint
		cmd.WaitDelay = time.Second // its children may hold its output open
		err := cmd.Run()
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("signing command %s: no answer within %s", command[0], commandTimeout)
		case err != nil && !errors.Is(err, exec.ErrWaitDelay): // then it has ended well, and answered
			return nil, fmt.Errorf("signing command %s: %w: %s", command[0], err, complaint.firstLine())
		}
		sig, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(out.text)))
		if err != nil || out.more {
			return nil, fmt.Errorf("signing command %s: it must print the base64 of the signature, and nothing else", command[0])
		}
		return sig, nil
	}
}

// bounded keeps the first maxAnswer bytes, and knows of more.
type bounded struct {
	text []byte
	more bool
}

func (b *bounded) Write(p []byte) (int, error) {
	kept := min(len(p), maxAnswer-len(b.text))
	b.text, b.more = append(b.text, p[:kept]...), b.more || kept < len(p)
	return len(p), nil
}

// firstLine is the first line of a program's complaint, enough for a person.
func (b *bounded) firstLine() string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(b.text)), "\n")
	return fmt.Sprintf("%.200q", line)
}
