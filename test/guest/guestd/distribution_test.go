package main

import (
	"maps"
	"testing"

	"drydock.dev/drydock/test/guest/cloudconfig"
)

func TestTheKernelsCommandLineNamesADistribution(t *testing.T) {
	for cmdline, want := range map[string]string{
		"console=ttyS0 quiet":                 "",
		"console=ttyS0 drydock.as=alpine":     "root",
		"drydock.as=cirros console=ttyS0\n":   "cirros",
		"console=ttyS0 drydock.as=fedora 3\n": "fedora",
	} {
		d, is, err := chosenDistribution(cmdline)
		if err != nil || is != (want != "") || d.user != want {
			t.Errorf("%q: got the user %q, %v and the error %v; want %q", cmdline, d.user, is, err, want)
		}
	}
	if _, _, err := chosenDistribution("drydock.as=plan9"); err == nil {
		t.Error("a distribution that nobody knows is taken")
	}
}

func TestADistributionsUserIsTheDefaultOne(t *testing.T) {
	for _, test := range []struct {
		name string
		seed seed
		user string
		want map[string]string
	}{
		{"no user data", seed{}, "fedora", map[string]string{"fedora": "fedora"}},
		{
			"a password for the default user", seed{user: cloudconfig.UserData{Passwords: map[string]string{"guest": "p", "root": "r"}}},
			"fedora", map[string]string{"fedora": "p", "root": "r"},
		},
		{
			"another default user", seed{user: cloudconfig.UserData{User: "ann", Passwords: map[string]string{"ann": "p"}}},
			"ann", map[string]string{"ann": "p"},
		},
	} {
		distributions["fedora"].owns(&test.seed)
		if test.seed.user.User != test.user || !maps.Equal(test.seed.user.Passwords, test.want) {
			t.Errorf("%s: got the user %q with %v, want %q with %v", test.name, test.seed.user.User, test.seed.user.Passwords, test.user, test.want)
		}
		if test.seed.unnamed != "fedora" {
			t.Errorf("%s: the host is called %q", test.name, test.seed.unnamed)
		}
	}
}
