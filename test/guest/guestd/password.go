package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

const shadowFile = "/etc/shadow"

// The guest agent calls it: lines of user:password are on its standard input. With -e they are hashed.
func chpasswd(_ context.Context, args []string) error {
	return changePasswords(os.Stdin, slices.Contains(args, "-e"))
}

func changePasswords(lines io.Reader, hashed bool) error {
	scanner := bufio.NewScanner(lines)
	for scanner.Scan() {
		user, password, found := strings.Cut(scanner.Text(), ":")
		if !found {
			return fmt.Errorf("a line has no user and password")
		}
		if !hashed {
			var err error
			if password, err = hashOf(user, password); err != nil {
				return err
			}
		}
		if err := setHash(user, password); err != nil {
			return err
		}
	}
	return scanner.Err()
}

// A password with a hash's prefix is hashed already.
func setPassword(user, password string) error {
	if !strings.HasPrefix(password, "$") {
		var err error
		if password, err = hashOf(user, password); err != nil {
			return err
		}
	}
	return setHash(user, password)
}

func hashOf(user, password string) (string, error) {
	cmd := exec.Command("mkpasswd", "-m", "sha512")
	cmd.Stdin = strings.NewReader(password + "\n")
	hash, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("hashing the password of %s: %w", user, err)
	}
	return strings.TrimSpace(string(hash)), nil
}

func setHash(user, hash string) error {
	old, err := os.ReadFile(shadowFile)
	if err != nil {
		return fmt.Errorf("setting the password of %s: %w", user, err)
	}
	changed, err := withHash(string(old), user, hash)
	if err != nil {
		return err
	}
	return os.WriteFile(shadowFile, []byte(changed), 0o600)
}

func withHash(shadow, user, hash string) (string, error) {
	entries := strings.Split(shadow, "\n")
	i := slices.IndexFunc(entries, func(entry string) bool { return strings.HasPrefix(entry, user+":") })
	if i < 0 {
		return "", fmt.Errorf("there is no user %s", user)
	}
	fields := strings.Split(entries[i], ":")
	fields[1] = hash
	entries[i] = strings.Join(fields, ":")
	return strings.Join(entries, "\n"), nil
}
