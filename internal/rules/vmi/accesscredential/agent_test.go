package accesscredential

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const byAgent = `
accessCredentials:
- sshPublicKey: {source: {secret: {secretName: team}}, propagationMethod: {qemuGuestAgent: {users: [ann, bob]}}}
- sshPublicKey: {source: {secret: {secretName: ann}}, propagationMethod: {qemuGuestAgent: {users: [ann]}}}
- sshPublicKey: {source: {secret: {secretName: first}}, propagationMethod: {noCloud: {}}}
- userPassword: {source: {secret: {secretName: words}}, propagationMethod: {qemuGuestAgent: {}}}
- userPassword: {source: {secret: {secretName: unsent}}, propagationMethod: {}}
- sshPublicKey: {source: {}, propagationMethod: {qemuGuestAgent: {users: [eve]}}}
`

func specOf(t *testing.T, text string) *v1.VirtualMachineInstanceSpec {
	t.Helper()
	spec := &v1.VirtualMachineInstanceSpec{}
	if err := yaml.UnmarshalStrict([]byte(text), spec); err != nil {
		t.Fatal(err)
	}
	return spec
}

func secrets(all map[string][]File) func(Source) ([]File, error) {
	return func(s Source) ([]File, error) {
		files, there := all[s.Secret]
		if !there {
			return nil, fmt.Errorf("no Secret %s at %d", s.Secret, s.Index)
		}
		return files, nil
	}
}

func TestWhatTheAgentIsToSet(t *testing.T) {
	got, err := ForAgent(specOf(t, byAgent), secrets(map[string][]File{
		"team": {{"keys", []byte("ssh-rsa A\nssh-rsa B\n")}}, "ann": {{"key", []byte("ssh-rsa B\nssh-rsa C")}},
		"words": {{"ann", []byte("hi there\n")}, {"corp\\bob", []byte("ü\r\n")}},
	}))
	want := Delivery{
		Keys:      map[string][]string{"ann": {"ssh-rsa A", "ssh-rsa B", "ssh-rsa C"}, "bob": {"ssh-rsa A", "ssh-rsa B"}},
		Passwords: map[string]string{"ann": "hi there", "corp\\bob": "ü"},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	none, err := ForAgent(specOf(t, byAgent), secrets(map[string][]File{"team": {{"keys", nil}}, "ann": nil, "words": nil}))
	if diff := cmp.Diff(Delivery{Keys: map[string][]string{"ann": nil, "bob": nil}, Passwords: map[string]string{}}, none); diff != "" || err != nil {
		t.Errorf("of empty Secrets: %v (-want +got):\n%s", err, diff)
	}
}

func TestWhetherTheAgentIsToSetAnything(t *testing.T) {
	for text, want := range map[string]bool{
		byAgent: true, `{}`: false,
		`accessCredentials: [{sshPublicKey: {source: {}, propagationMethod: {noCloud: {}}}}, {userPassword: {source: {}, propagationMethod: {}}}, {}]`: false,
		`accessCredentials: [{userPassword: {source: {}, propagationMethod: {qemuGuestAgent: {}}}}]`:                                                   true,
	} {
		if got := ByAgent(specOf(t, text)); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

func TestWhatTheAgentIsNotGiven(t *testing.T) {
	big := strings.Repeat("k", maxKey)
	var many []string
	for i := range MaxUsers + 1 {
		many = append(many, fmt.Sprintf("u%d", i))
	}
	for name, test := range map[string]struct {
		team, ann, words []File
		missing          bool
		users            []string
		want             string
	}{
		"a Secret that can't be read":  {missing: true, want: "no Secret team at 0"},
		"what is no key":               {team: []File{{"k", []byte("-----BEGIN KEY")}}, want: "the Secret team has something in k that is no SSH public key: it must have one key a line"},
		"too many keys of a user":      {team: []File{{"k", numbered("a", maxKeys)}}, ann: []File{{"k", []byte("b")}}, want: "the user ann has more than 512 SSH public keys, or more than 1048576 bytes of them"},
		"too long keys of a user":      {team: []File{{"k", lines(big, maxUserKeys/maxKey)}}, ann: []File{{"k", []byte("b")}}, want: "the user ann has more than 512 SSH public keys, or more than 1048576 bytes of them"},
		"a password of a strange user": {words: []File{{"a b", []byte("x")}}, want: "the Secret words has something that is no name of a user: each of its keys names one"},
		"an empty password":            {words: []File{{"ann", []byte("\n")}}, want: noPassword},
		"a password of two lines":      {words: []File{{"ann", []byte("a\nb")}}, want: noPassword},
		"a binary password":            {words: []File{{"ann", []byte("\xff")}}, want: noPassword},
		"a password that is too long":  {words: []File{{"ann", []byte(strings.Repeat("x", maxPassword+1))}}, want: noPassword},
		"too many users":               {users: many, want: "the access credentials are of 65 users, and the guest agent sets those of at most 64"},
		"the longest password":         {words: []File{{"ann", []byte(strings.Repeat("x", maxPassword))}}},
		"the most keys of a user":      {team: []File{{"k", numbered("a", maxKeys-1)}}, ann: []File{{"k", []byte("b")}}},
		"the most users":               {users: many[:MaxUsers]},
	} {
		spec := specOf(t, byAgent)
		if test.users != nil {
			spec.AccessCredentials = spec.AccessCredentials[:1]
			spec.AccessCredentials[0].SSHPublicKey.PropagationMethod.QemuGuestAgent.Users = test.users
		}
		all := map[string][]File{"team": test.team, "ann": test.ann, "words": test.words}
		if test.missing {
			all = nil
		}
		d, err := ForAgent(spec, secrets(all))
		if got := errors.Join(err); (got == nil) != (test.want == "") || got != nil && got.Error() != test.want || got != nil && !d.Equal(Delivery{}) {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
}

const noPassword = "the Secret words has something for the user ann that is no password: it must be of 1 to 1024 bytes, and one line"

// numbered returns n different lines.
func numbered(prefix string, n int) []byte {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%s%d\n", prefix, i)
	}
	return []byte(b.String())
}

// lines returns n different lines, each as long as like.
func lines(like string, n int) []byte {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%04d%s\n", i, like[4:])
	}
	return []byte(b.String())
}

func TestDeliveriesAreCompared(t *testing.T) {
	full := func() Delivery {
		return Delivery{Keys: map[string][]string{"ann": {"a", "b"}}, Passwords: map[string]string{"ann": "x"}}
	}
	for name, test := range map[string]struct {
		edit func(*Delivery)
		want bool
	}{
		"the same":           {func(*Delivery) {}, true},
		"another key":        {func(d *Delivery) { d.Keys["ann"] = []string{"a", "c"} }, false},
		"another order":      {func(d *Delivery) { d.Keys["ann"] = []string{"b", "a"} }, false},
		"one user more":      {func(d *Delivery) { d.Keys["bob"] = nil }, false},
		"another user":       {func(d *Delivery) { d.Keys = map[string][]string{"bob": {"a", "b"}} }, false},
		"another password":   {func(d *Delivery) { d.Passwords["ann"] = "y" }, false},
		"another's password": {func(d *Delivery) { d.Passwords = map[string]string{"bob": "x"} }, false},
		"one password more":  {func(d *Delivery) { d.Passwords["bob"] = "y" }, false},
	} {
		other := full()
		test.edit(&other)
		if got := full().Equal(other); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
