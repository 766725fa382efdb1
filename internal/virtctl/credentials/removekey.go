package credentials

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"drydock.dev/drydock/internal/virtctl/env"
)

func removeKeys(ctx context.Context, e *env.Env, o *options) error {
	keys, err := o.keys(e)
	if err != nil {
		return err
	}
	m, err := look(ctx, e, o)
	if err != nil {
		return err
	}
	names := keySecrets(m.vm, o.user)
	if o.secret != "" {
		name, err := choose(names, o.secret, "SSH keys of the user "+o.user)
		if err != nil {
			return fmt.Errorf("removing an SSH key of VM %s: %w", o.machine, err)
		}
		names = []string{name}
	}
	removed := 0
	for _, name := range names {
		changed, err := m.change(ctx, name, func(data map[string][]byte) bool { return remove(data, keys) })
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return fmt.Errorf("removing an SSH key of VM %s: %w", o.machine, err)
		case changed:
			removed++
			fmt.Fprintf(e.Out, "SSH key removed from Secret %s of VM %s\n", name, o.machine)
		}
	}
	if removed == 0 {
		fmt.Fprintf(e.Out, "No Secret gives the user %s of VM %s the SSH key\n", o.user, o.machine)
	}
	return nil
}

// remove removes the keys from all entries, and entries without any other content.
func remove(data map[string][]byte, keys []string) (changed bool) {
	for name, before := range data {
		after := without(string(before), keys)
		switch {
		case after == string(before):
			continue
		case after == "":
			delete(data, name)
		default:
			data[name] = []byte(after)
		}
		changed = true
	}
	return changed
}
