package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"drydock.dev/drydock/test/guest/cloudconfig"
)

const (
	defaultHostname = "guest"
	// hostnameMark tells udhcpc's script to ignore DHCP's host name.
	hostnameMark = "/run/hostname-set"
)

// apply sets the guest's name, its users' keys and passwords, and the user's files, before anybody can log in.
func (s *seed) apply() error {
	errs := []error{s.applyHostname()}
	users, err := os.ReadFile("/etc/passwd")
	errs = append(errs, err)
	for _, name := range slices.Sorted(maps.Keys(accounts(&s.user))) {
		if !strings.Contains("\n"+string(users), "\n"+name+":") {
			errs = append(errs, addUser(name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.user.Passwords)) {
		errs = append(errs, setPassword(name, s.user.Passwords[name]))
	}
	keys := append(slices.Clone(s.keys), s.user.Keys...)
	errs = append(errs, authorize("/root", 0, keys), authorize("/home/"+s.user.UserName(), guestID, keys))
	for i := range s.user.Files {
		errs = append(errs, writeFile(&s.user.Files[i]))
	}
	return errors.Join(errs...)
}

// guestID is the ID of every user except root.
const guestID = 1000

func accounts(u *cloudconfig.UserData) map[string]bool {
	names := map[string]bool{u.UserName(): true}
	for name := range u.Passwords {
		names[name] = true
	}
	return names
}

func (s *seed) applyHostname() error {
	name := cmp.Or(s.unnamed, defaultHostname)
	if s.hostname != "" {
		name, _, _ = strings.Cut(s.hostname, ".")
		if err := os.WriteFile(hostnameMark, nil, 0o644); err != nil {
			return fmt.Errorf("setting the host name: %w", err)
		}
	}
	if err := unix.Sethostname([]byte(name)); err != nil {
		return fmt.Errorf("setting the host name: %w", err)
	}
	return appendTo("/etc/hosts", "127.0.1.1\t"+name+"\n")
}

func addUser(name string) error {
	home := "/home/" + name
	if err := os.MkdirAll(home, 0o755); err != nil {
		return fmt.Errorf("adding the user %s: %w", name, err)
	}
	return errors.Join(
		appendTo("/etc/passwd", fmt.Sprintf("%s:x:%d:%d::%s:/bin/sh\n", name, guestID, guestID, home)),
		appendTo("/etc/shadow", name+":*:20000:0:99999:7:::\n"),
		os.Chown(home, guestID, guestID),
	)
}

func appendTo(name, text string) error {
	file, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}

func authorize(home string, id int, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	folder := filepath.Join(home, ".ssh")
	file := filepath.Join(folder, "authorized_keys")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("writing the SSH keys: %w", err)
	}
	if err := os.WriteFile(file, []byte(strings.Join(keys, "\n")+"\n"), 0o600); err != nil {
		return fmt.Errorf("writing the SSH keys: %w", err)
	}
	return errors.Join(os.Chown(folder, id, id), os.Chown(file, id, id))
}

func writeFile(f *cloudconfig.File) error {
	data, err := f.Bytes()
	if err != nil {
		return err
	}
	mode, err := f.Mode()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(f.Path), 0o755); err != nil {
		return fmt.Errorf("writing %s: %w", f.Path, err)
	}
	how := os.O_CREATE | os.O_WRONLY | os.O_TRUNC
	if f.Append {
		how = os.O_CREATE | os.O_WRONLY | os.O_APPEND
	}
	file, err := os.OpenFile(f.Path, how, os.FileMode(mode))
	if err != nil {
		return fmt.Errorf("writing %s: %w", f.Path, err)
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Chmod(os.FileMode(mode)), file.Close())
}

const userScript = "/var/lib/cloud/user-data"

// runUserData runs the user's script and commands, one after another, as root. Their output goes to cloud-init's usual log.
func runUserData(ctx context.Context, u *cloudconfig.UserData) error {
	log, err := os.OpenFile("/var/log/cloud-init-output.log", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	commands := u.Commands
	if u.Script != nil {
		file := cloudconfig.File{Path: userScript, Content: string(u.Script), Permissions: strconv.FormatUint(0o700, 8)}
		if err := writeFile(&file); err != nil {
			return err
		}
		commands = append(commands, cloudconfig.Command{userScript})
	}
	var errs []error
	for _, words := range commands {
		if len(words) == 0 {
			continue
		}
		cmd := exec.CommandContext(ctx, words[0], words[1:]...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = "/", log, log
		if err := cmd.Run(); err != nil {
			errs = append(errs, fmt.Errorf("running %s: %w", strings.Join(words, " "), err))
		}
	}
	return errors.Join(errs...)
}
