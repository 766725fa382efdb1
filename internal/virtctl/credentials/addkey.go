package credentials

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/virtctl/env"
)

func addKeys(ctx context.Context, e *env.Env, o *options) error {
	keys, err := o.keys(e)
	if err != nil {
		return err
	}
	m, err := look(ctx, e, o)
	if err != nil {
		return err
	}
	names := keySecrets(m.vm, o.user)
	if o.create || !o.update && o.secret == "" && len(names) == 0 {
		return m.addSecret(ctx, e, o, keys)
	}
	name, err := choose(names, o.secret, "SSH keys of the user "+o.user)
	if err != nil {
		return fmt.Errorf("adding an SSH key to VM %s: %w", o.machine, err)
	}
	changed, err := m.change(ctx, name, func(data map[string][]byte) bool { return enter(data, keys) })
	switch {
	case err != nil:
		return fmt.Errorf("adding an SSH key to VM %s: %w", o.machine, err)
	case !changed:
		fmt.Fprintf(e.Out, "Secret %s already has the SSH key\n", name)
	default:
		fmt.Fprintf(e.Out, "SSH key added to Secret %s of VM %s\n", name, o.machine)
	}
	return nil
}

// Each key gets an entry.
func enter(data map[string][]byte, keys []string) (changed bool) {
	for _, key := range keys {
		if has(data, key) {
			continue
		}
		name := "ssh-key-" + layout.LongDigest(identity(key))
		// Somebody may have changed the entry.
		if before := strings.TrimRight(string(data[name]), "\n"); before != "" {
			key = before + "\n" + key
		}
		data[name] = []byte(key + "\n")
		changed = true
	}
	return changed
}

func (m *machine) addSecret(ctx context.Context, e *env.Env, o *options, keys []string) error {
	runs, err := m.runs(ctx)
	if err != nil {
		return err
	}
	if runs && !m.force {
		return fmt.Errorf("adding an SSH key to VM %s: it runs, and gets another Secret only with its next start: make it all the same with --force", o.machine)
	}
	secret, err := m.c.Core().Secrets(m.vm.Namespace).Create(ctx, newSecret(m.vm, o.secret, keys), metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating a Secret for VM %s: %w", o.machine, err)
	}
	if err := m.name(ctx, secret.Name, o.user); err != nil {
		return fmt.Errorf("adding the Secret %s to VM %s: %w", secret.Name, o.machine, m.undo(ctx, secret, err))
	}
	fmt.Fprintf(e.Out, "Secret %s with the SSH key added to VM %s\n", secret.Name, o.machine)
	if runs {
		fmt.Fprintf(e.Err, "VM %s runs, and gets it with its next start: '%s restart %s'\n", o.machine, e.Program, o.machine)
	}
	return nil
}

// A guest keeps the credentials that it started with.
func (m *machine) runs(ctx context.Context) (bool, error) {
	vmi, err := m.c.VMI(ctx, m.vm.Namespace, m.vm.Name)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading VMI %s: %w", m.vm.Name, err)
	}
	return !vmi.IsFinal(), nil
}

// The Secret is deleted with the machine.
func newSecret(vm *v1.VirtualMachine, name string, keys []string) *corev1.Secret {
	controls := true
	meta := metav1.ObjectMeta{Name: name, Namespace: vm.Namespace, OwnerReferences: []metav1.OwnerReference{{
		APIVersion: v1.GroupVersion.String(), Kind: v1.VirtualMachineGroupVersionKind.Kind, Name: vm.Name, UID: vm.UID, Controller: &controls,
	}}}
	if name == "" {
		meta.GenerateName = vm.Name + "-ssh-key-"
	}
	secret := &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{}}
	enter(secret.Data, keys)
	return secret
}

func (m *machine) name(ctx context.Context, secret, user string) error {
	credential := &v1.AccessCredential{SSHPublicKey: &v1.SSHPublicKeyAccessCredential{
		Source: v1.SSHPublicKeyAccessCredentialSource{Secret: &v1.AccessCredentialSecretSource{SecretName: secret}},
		PropagationMethod: v1.SSHPublicKeyAccessCredentialPropagationMethod{
			QemuGuestAgent: &v1.QemuGuestAgentSSHPublicKeyAccessCredentialPropagation{Users: []string{user}},
		},
	}}
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		now, err := readVM(ctx, m.c, m.vm.Namespace, m.vm.Name)
		if err != nil {
			return err
		}
		if now.UID != m.vm.UID {
			return errors.New("there is another machine of that name meanwhile")
		}
		return m.c.AddCredential(ctx, now, credential)
	})
}

// If the error leaves open whether the machine refers to the Secret, it stays: the machine would not start
// without it.
func (m *machine) undo(ctx context.Context, secret *corev1.Secret, because error) error {
	var status apierrors.APIStatus
	if !errors.As(because, &status) || status.Status().Code >= http.StatusInternalServerError {
		return fmt.Errorf("%w; the Secret stays", because)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err := m.c.Core().Secrets(m.vm.Namespace).Delete(ctx, secret.Name, *metav1.NewPreconditionDeleteOptions(string(secret.UID)))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("%w; the Secret stays, because deleting it failed, too: %w", because, err)
	}
	return because
}
