package audit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// softHSM makes a token in software with an Ed25519 key, and gives the signing command and the
// public key's PEM.
func softHSM(t *testing.T) (sign func(pin string) []string, public []byte) {
	t.Helper()
	for _, tool := range []string{"softhsm2-util", "pkcs11-tool", "openssl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("SKIPPED: %s is not installed (Debian: softhsm2, opensc, openssl)", tool)
		}
	}
	var modules []string
	for _, pattern := range []string{"/usr/lib/softhsm/libsofthsm2.so", "/usr/lib/*/softhsm/libsofthsm2.so", "/usr/lib*/pkcs11/libsofthsm2.so", "/usr/local/lib/softhsm/libsofthsm2.so"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		modules = append(modules, found...)
	}
	if len(modules) == 0 {
		t.Skip("SKIPPED: libsofthsm2.so is in none of the usual folders")
	}
	dir := t.TempDir()
	tokens, conf, pem := filepath.Join(dir, "tokens"), filepath.Join(dir, "softhsm2.conf"), filepath.Join(dir, "public.pem")
	require.NoError(t, os.Mkdir(tokens, 0o700))
	require.NoError(t, os.WriteFile(conf, fmt.Appendf(nil, "directories.tokendir = %s\nlog.level = ERROR\n", tokens), 0o600))
	run := func(args ...string) {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "SOFTHSM2_CONF="+conf)
		said, err := cmd.CombinedOutput()
		require.NoError(t, err, "%v: %s", args, said)
	}
	run("softhsm2-util", "--init-token", "--free", "--label", "audit", "--so-pin", "12345678", "--pin", "5678")
	tool := []string{"pkcs11-tool", "--module", modules[0], "--token-label", "audit"}
	run(append(tool, "--login", "--pin", "5678", "--keypairgen", "--key-type", "EC:edwards25519", "--label", "trail", "--id", "01")...)
	run(append(tool, "--read-object", "--type", "pubkey", "--label", "trail", "--output-file", pem)...)
	public, err := os.ReadFile(pem)
	require.NoError(t, err)
	if public[0] != '-' { // newer than OpenSC 0.23
		run("openssl", "pkey", "-pubin", "-inform", "DER", "-in", pem, "-out", pem+".pem")
		public, err = os.ReadFile(pem + ".pem")
		require.NoError(t, err)
	}
	program, err := filepath.Abs("../../../deploy/sign-pkcs11")
	require.NoError(t, err)
	return func(pin string) []string {
		return []string{"env", "SOFTHSM2_CONF=" + conf, "AUDITRELAY_PKCS11_PIN=" + pin, program, modules[0], "audit", "trail"}
	}, public
}

// A trail is signed by a key in a PKCS#11 token, with the program in deploy/; with a wrong PIN
// entries are taken, and signed later.
func TestAKeyInAToken(t *testing.T) {
	t.Parallel()
	command, pem := softHSM(t)
	st, _ := startStore(t, t.TempDir())
	o := testOptions(t)
	o.KeyFile, o.PinFile, o.SignEvery = "", filepath.Join(t.TempDir(), "audit.checkpoint"), time.Hour
	var err error
	o.PublicKey, err = PublicKey("example.com/trail", pem)
	require.NoError(t, err)
	o.SignCommand = command("1111")
	trail := openTrail(t, st, o)
	appendEntries(t, trail, 0, 2)
	require.ErrorContains(t, trail.Sign(t.Context()), "CKR_PIN_INCORRECT")
	require.Error(t, trail.Close(t.Context()))
	o.SignCommand = command("5678")
	trail = openTrail(t, st, o)
	appendEntries(t, trail, 2, 4)
	require.NoError(t, trail.Sign(t.Context()))
	requireWhole(t, trail, 4)
	require.NoError(t, trail.Close(t.Context()))

	requireWhole(t, openTrail(t, st, o), 4)
}
