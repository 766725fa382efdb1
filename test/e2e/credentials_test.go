//go:build e2e

package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/condition"
)

// TestKeysReachAGuestThatRuns has the guest's agent set the SSH keys of a user, follows a change of their Secret, and asks
// for a user who is not there.
func TestKeysReachAGuestThatRuns(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "keys"}, StringData: map[string]string{"laptop": "ssh-ed25519 AAAA one"}}
	create(t, secret)
	vmi := newVMI(ns, "open")
	vmi.Spec.AccessCredentials = []v1.AccessCredential{keysByAgent("keys", "root")}
	g := boot(t, vmi)
	synchronized(t, ns, "open", corev1.ConditionTrue)
	g.sees("root's keys", "cat /root/.ssh/authorized_keys", "ssh-ed25519 AAAA one")

	changed := secret.DeepCopy()
	changed.StringData = map[string]string{"laptop": "ssh-ed25519 BBBB two"}
	if err := cluster.client.Update(t.Context(), changed); err != nil {
		t.Fatalf("changing the Secret: %v", err)
	}
	eventually(t, "the guest to have the Secret's new keys", func(context.Context) error {
		if keys := g.run("cat /root/.ssh/authorized_keys"); strings.TrimSpace(keys) != "ssh-ed25519 BBBB two" {
			return errors.New("root's keys are " + keys)
		}
		return nil
	})

	stranger := newVMI(ns, "stranger")
	stranger.Spec.AccessCredentials = []v1.AccessCredential{keysByAgent("keys", "stranger")}
	create(t, stranger)
	if c := synchronized(t, ns, "stranger", corev1.ConditionFalse); !strings.Contains(c.Message, "setting the SSH public keys of the user stranger") {
		t.Errorf("of a user who is not there, the VMI says: %+v", c)
	}
}

// TestAPasswordReachesAGuestThatRuns has the guest's agent set a user's password, and follows a change of its Secret.
func TestAPasswordReachesAGuestThatRuns(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "passwords"}, StringData: map[string]string{"guest": "the first"}}
	create(t, secret)
	vmi := newVMI(ns, "asks")
	vmi.Spec.AccessCredentials = []v1.AccessCredential{{UserPassword: &v1.UserPasswordAccessCredential{
		Source:            v1.UserPasswordAccessCredentialSource{Secret: &v1.AccessCredentialSecretSource{SecretName: secret.Name}},
		PropagationMethod: v1.UserPasswordAccessCredentialPropagationMethod{QemuGuestAgent: &v1.QemuGuestAgentUserPasswordAccessCredentialPropagation{}},
	}}}
	g := boot(t, vmi)
	synchronized(t, ns, "asks", corev1.ConditionTrue)
	g.takes("guest", "the first")

	changed := secret.DeepCopy()
	changed.StringData = map[string]string{"guest": "another: $x"}
	hash := g.run("grep ^guest: /etc/shadow")
	if err := cluster.client.Update(t.Context(), changed); err != nil {
		t.Fatalf("changing the Secret: %v", err)
	}
	eventually(t, "the guest to have another password", func(context.Context) error {
		if g.run("grep ^guest: /etc/shadow") == hash {
			return errors.New("it has the first")
		}
		return nil
	})
	g.takes("guest", "another: $x")
}

// takes logs a user in on the console by a password, and then root again.
func (g *guest) takes(user, password string) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), patience)
	defer cancel()
	for _, who := range [][2]string{{user, password}, {"root", "root"}} {
		if err := g.console.Logout(ctx); err != nil {
			g.t.Fatal(err)
		}
		if err := g.console.LoginAs(ctx, who[0], who[1]); err != nil {
			g.t.Fatalf("logging in as %s: %v", who[0], err)
		}
		g.sees("who is logged in", "id -un", who[0])
	}
}

func keysByAgent(secret, user string) v1.AccessCredential {
	return v1.AccessCredential{SSHPublicKey: &v1.SSHPublicKeyAccessCredential{
		Source:            v1.SSHPublicKeyAccessCredentialSource{Secret: &v1.AccessCredentialSecretSource{SecretName: secret}},
		PropagationMethod: v1.SSHPublicKeyAccessCredentialPropagationMethod{QemuGuestAgent: &v1.QemuGuestAgentSSHPublicKeyAccessCredentialPropagation{Users: []string{user}}},
	}}
}

// synchronized waits for what the VMI says of its access credentials.
func synchronized(t *testing.T, namespace, name string, status corev1.ConditionStatus) *v1.VirtualMachineInstanceCondition {
	t.Helper()
	kind := v1.VirtualMachineInstanceAccessCredentialsSynchronized
	vmi := awaitVMI(t, namespace, name, "its credentials to be synchronized: "+string(status), func(vmi *v1.VirtualMachineInstance) bool {
		c := condition.Find(vmi.Status.Conditions, kind)
		return c != nil && c.Status == status
	})
	return condition.Find(vmi.Status.Conditions, kind)
}
