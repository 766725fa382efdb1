package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"drydock.dev/drydock/test/guest/cloudconfig"
)

// distributionArg is the kernel argument that names a distribution, as in drydock.as=alpine.
const distributionArg = "drydock.as="

// distribution has the login dialog of another distribution's guest, for tests of others that expect it.
type distribution struct {
	hostname, issue string
	// user has root's ID: no command in this guest lets another user become root.
	user, password string
	// prompt and rootPrompt are the shell's, before and after `sudo su`.
	prompt, rootPrompt string
}

var distributions = map[string]distribution{
	"alpine": {
		hostname: "localhost", issue: "Welcome to Alpine Linux\n\n", user: "root",
		prompt: `\h:~\$ `, rootPrompt: `\h:~\$ `,
	},
	"cirros": {
		hostname: "cirros", issue: "login as 'cirros' user. default password: 'gocubsgo'. use 'sudo' for root.\n", user: "cirros", password: "gocubsgo",
		prompt: "$ ", rootPrompt: "# ",
	},
	"fedora": {
		hostname: "fedora", issue: "Fedora Linux\n\n", user: "fedora", password: "fedora",
		prompt: `[fedora@\h ~]$ `, rootPrompt: `[root@\h fedora]# `,
	},
}

func chosenDistribution(cmdline string) (_ distribution, is bool, err error) {
	for _, arg := range strings.Fields(cmdline) {
		name, is := strings.CutPrefix(arg, distributionArg)
		if !is {
			continue
		}
		chosen, known := distributions[name]
		if !known {
			return distribution{}, false, fmt.Errorf("the kernel's argument %s names no distribution that this guest can be taken for", arg)
		}
		return chosen, true, nil
	}
	return distribution{}, false, nil
}

func (s *seed) become() error {
	cmdline, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return fmt.Errorf("reading the kernel's command line: %w", err)
	}
	d, is, err := chosenDistribution(string(cmdline))
	if err != nil || !is {
		return err
	}
	d.owns(s)
	return d.write()
}

func (d distribution) owns(s *seed) {
	s.unnamed = d.hostname
	if s.user.User != "" {
		return
	}
	s.user.User = d.user
	passwords := map[string]string{}
	if d.password != "" {
		passwords[d.user] = d.password
	}
	for user, password := range s.user.Passwords {
		if user == cloudconfig.DefaultUser {
			user = d.user
		}
		passwords[user] = password
	}
	s.user.Passwords = passwords
}

func (d distribution) write() error {
	profile := fmt.Sprintf("export PATH=/sbin:/usr/sbin:/bin:/usr/bin\nexport PS1='%s'\n", d.prompt)
	sudo := fmt.Sprintf("#!/bin/sh\nif [ \"$*\" = su ]; then export HOME=/root PS1='%s'; exec /bin/sh; fi\nexec \"$@\"\n", d.rootPrompt)
	errs := []error{
		os.WriteFile("/etc/issue", []byte(d.issue), 0o644),
		os.WriteFile("/etc/profile", []byte(profile), 0o644),
		os.WriteFile("/bin/sudo", []byte(sudo), 0o755),
	}
	users, err := os.ReadFile("/etc/passwd")
	errs = append(errs, err)
	if d.user == "root" {
		// With an empty password in this file, login asks for none.
		users = []byte(strings.Replace(string(users), "root:x:", "root::", 1))
		return errors.Join(append(errs, os.WriteFile("/etc/passwd", users, 0o644))...)
	}
	home := "/home/" + d.user
	return errors.Join(append(errs,
		os.MkdirAll(home, 0o755),
		os.WriteFile("/etc/passwd", append(users, fmt.Sprintf("%s:x:0:0::%s:/bin/sh\n", d.user, home)...), 0o644),
		appendTo("/etc/shadow", d.user+":*:20000:0:99999:7:::\n"))...)
}
