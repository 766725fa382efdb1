package ssh

import (
	"slices"
	"strings"
	"testing"

	"drydock.dev/drydock/internal/virtctl/target"
)

// OpenSSH uses the first option of a name.
func first(arguments []string, option string) string {
	var texts []string
	for _, argument := range arguments {
		texts = append(texts, strings.TrimSpace(strings.TrimPrefix(argument, "-o")))
	}
	i := slices.IndexFunc(texts, func(text string) bool { return strings.HasPrefix(text, option+"=") })
	if i < 0 {
		return ""
	}
	return strings.TrimPrefix(texts[i], option+"=")
}

func TestTheUsersOptionsOfSSHCount(t *testing.T) {
	const keys, strict = "UserKnownHostsFile", "StrictHostKeyChecking"
	for name, c := range map[string]struct {
		settings
		keys, strict string
	}{
		"by default":                 {settings{knownHosts: "/known"}, "/known", ""},
		"an option for OpenSSH":      {settings{knownHosts: "/known", local: []string{"-o UserKnownHostsFile=/mine"}}, "/mine", ""},
		"no host key is to be known": {settings{knownHosts: "/dev/null"}, "/dev/null", "accept-new"},
		"strict all the same":        {settings{knownHosts: "/dev/null", local: []string{"-o", "StrictHostKeyChecking=yes"}}, "/dev/null", "yes"},
		"left to ssh":                {settings{}, "", ""},
	} {
		arguments := sshArguments(c.settings, "proxy", target.Target{Kind: "vm", Name: "m"}, "", nil)
		if got := first(arguments, keys); got != c.keys || first(arguments, strict) != c.strict {
			t.Errorf("%s: %q has the keys in %q, strictness %q; want %q, %q", name, arguments, got, first(arguments, strict), c.keys, c.strict)
		}
	}
}
