package credentials

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"drydock.dev/drydock/internal/virtctl/env"
)

func setPassword(ctx context.Context, e *env.Env, o *options) error {
	password, err := o.readPassword(e)
	if err != nil {
		return err
	}
	if problems := validation.IsConfigMapKey(o.user); len(problems) > 0 {
		return fmt.Errorf("--user: a Secret can't have a password of %q: %s", o.user, problems[0])
	}
	m, err := look(ctx, e, o)
	if err != nil {
		return err
	}
	name, err := choose(passwordSecrets(m.vm), o.secret, "passwords")
	if err == nil {
		_, err = m.change(ctx, name, func(data map[string][]byte) bool {
			changed := string(data[o.user]) != password
			data[o.user] = []byte(password)
			return changed
		})
	}
	if err != nil {
		return fmt.Errorf("setting a password of VM %s: %w", o.machine, err)
	}
	fmt.Fprintf(e.Out, "Password of %s set in Secret %s of VM %s\n", o.user, name, o.machine)
	return nil
}

// maxPassword is the longest password that a guest gets.
const maxPassword = 1 << 10

// readPassword returns an error for a password with which the guest would get no password of the Secret. No
// error contains the password.
func (o *options) readPassword(e *env.Env) (string, error) {
	password, flag := o.password, "password"
	if o.passwordFile != "" {
		flag = "password-file"
		text, err := read(e, flag, o.passwordFile)
		if err != nil {
			return "", err
		}
		password = strings.TrimRight(text, "\r\n")
	}
	switch {
	case password == "" && o.passwordFile == "":
		return "", errors.New("say which password: with --password-file, or with --password")
	case password == "" || len(password) > maxPassword || !isPlain(password) || strings.Contains(password, "\t"):
		return "", fmt.Errorf("--%s: a password is one line of 1 to %d bytes without control characters", flag, maxPassword)
	}
	return password, nil
}
