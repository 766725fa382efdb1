package accesscredential

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestWhichSecretGoesWhichWay(t *testing.T) {
	spec := &v1.VirtualMachineInstanceSpec{}
	if err := yaml.UnmarshalStrict([]byte(`
accessCredentials:
- sshPublicKey: {source: {secret: {secretName: a}}, propagationMethod: {noCloud: {}}}
- sshPublicKey: {source: {secret: {secretName: b}}, propagationMethod: {configDrive: {}}}
- sshPublicKey: {source: {}, propagationMethod: {noCloud: {}}}
- sshPublicKey: {source: {secret: {secretName: a}}, propagationMethod: {qemuGuestAgent: {users: [root]}}}
- userPassword: {source: {secret: {secretName: c}}, propagationMethod: {qemuGuestAgent: {}}}
- {}
`), spec); err != nil {
		t.Fatal(err)
	}
	for what, tc := range map[string]struct{ got, want []Source }{
		"in the pod":  {Sources(spec), []Source{{0, "a"}, {1, "b"}, {3, "a"}, {4, "c"}}},
		"NoCloud":     {NoCloud(spec), []Source{{0, "a"}}},
		"ConfigDrive": {ConfigDrive(spec), []Source{{1, "b"}}},
	} {
		if diff := cmp.Diff(tc.want, tc.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
}

func TestKeysAreTheLinesOfASecret(t *testing.T) {
	got, err := Keys("s", []File{
		{"a", []byte("# laptop\n\n ssh-ed25519 AAAA me\r\n\tssh-rsa BBBB\tx")},
		{"b", []byte(`from="10.0.0.0/8",command="echo \"hi\"" ssh-rsa CCCC ü` + "\n")},
		{"c", nil},
		{"d", []byte(strings.Repeat("k", maxKey))},
	})
	want := []string{"ssh-ed25519 AAAA me", "ssh-rsa BBBB\tx", `from="10.0.0.0/8",command="echo \"hi\"" ssh-rsa CCCC ü`, strings.Repeat("k", maxKey)}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestWhatIsNoKeyIsRefused(t *testing.T) {
	for what, line := range map[string]string{
		"a private key": "-----BEGIN RSA PRIVATE KEY-----",
		"binary":        "ssh-rsa \xff",
		"a NUL":         "ssh-rsa A\x00B",
		"a return":      "ssh-rsa A\rssh-rsa B",
		"too long":      strings.Repeat("k", maxKey+1),
	} {
		keys, err := Keys("s", []File{{"good", []byte("ssh-rsa A")}, {"bad", []byte(line)}})
		const want = "the Secret s has something in bad that is no SSH public key: it must have one key a line"
		if keys != nil || err == nil || err.Error() != want {
			t.Errorf("%s: %v, %v", what, keys, err)
		}
	}
	few, err := Keys("s", []File{{"a", []byte(strings.Repeat("k\n", maxKeys))}})
	if err != nil || len(few) != maxKeys {
		t.Errorf("%d keys: %v", len(few), err)
	}
	if _, err := Keys("s", []File{{"a", []byte(strings.Repeat("k\n", maxKeys+1))}}); err == nil {
		t.Error("one more is taken")
	}
}

func TestNamesOfUsers(t *testing.T) {
	for _, name := range []string{"root", "domain\\admin", "user.name-1_x@corp", "ü", "...", strings.Repeat("x", maxUser)} {
		if !IsUser(name) {
			t.Errorf("%q is refused", name)
		}
	}
	for _, name := range []string{"", ".", "..", "a b", "a\tb", "a/b", "a\x00", "\xff", strings.Repeat("x", maxUser+1)} {
		if IsUser(name) {
			t.Errorf("%q is taken", name)
		}
	}
}
