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

	"drydock.dev/drydock/internal/rules/object/condition"
)

// TestTheAgentServesAGuestThatRuns has an agent set SSH keys and a password, apply changes of their Secrets, and
// run a readiness probe's command. internal/handler/guestagent tests agents that refuse; only a real agent shows
// that the user can log in.
func TestTheAgentServesAGuestThatRuns(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	keys := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "keys"}, StringData: map[string]string{"laptop": "ssh-ed25519 AAAA one"}}
	passwords := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "passwords"}, StringData: map[string]string{"guest": "the first"}}
	create(t, keys)
	create(t, passwords)
	vmi := newVMI(ns, "open")
	vmi.Spec.ReadinessProbe = &v1.Probe{Handler: v1.Handler{Exec: &corev1.ExecAction{Command: []string{"test", "-f", "/tmp/ready"}}}, PeriodSeconds: 1, TimeoutSeconds: 5, FailureThreshold: 1}
	vmi.Spec.AccessCredentials = []v1.AccessCredential{keysByAgent("keys", "root"), {UserPassword: &v1.UserPasswordAccessCredential{
		Source:            v1.UserPasswordAccessCredentialSource{Secret: &v1.AccessCredentialSecretSource{SecretName: passwords.Name}},
		PropagationMethod: v1.UserPasswordAccessCredentialPropagationMethod{QemuGuestAgent: &v1.QemuGuestAgentUserPasswordAccessCredentialPropagation{}},
	}}}
	boot(t, vmi)
	synchronized(t, ns, "open", corev1.ConditionTrue)
	inTurn(t,
		chapter{"it is Ready when a command in it succeeds", func(t *testing.T) { isReadyWhen(t, login(t, ns, "open"), "touch /tmp/ready") }},
		chapter{"keys and a password are there", func(t *testing.T) {
			g := login(t, ns, "open")
			g.sees("root's keys", "cat /root/.ssh/authorized_keys", "ssh-ed25519 AAAA one")
			g.takes("guest", "the first")
		}},
		chapter{"they follow their Secrets", func(t *testing.T) { credentialsFollow(t, login(t, ns, "open"), keys, passwords) }},
	)
}

// credentialsFollow changes the Secrets with root's keys and a password. The kubelet needs up to a minute to mount the
// change.
func credentialsFollow(t *testing.T, g *guest, keys, passwords *corev1.Secret) {
	t.Helper()
	hash := g.run("grep ^guest: /etc/shadow")
	for secret, data := range map[*corev1.Secret]map[string]string{
		keys: {"laptop": "ssh-ed25519 BBBB two"}, passwords: {"guest": "another: $x"},
	} {
		changed := secret.DeepCopy()
		changed.StringData = data
		if err := cluster.client.Update(t.Context(), changed); err != nil {
			t.Fatalf("changing the Secret: %v", err)
		}
	}
	eventually(t, "the guest to have the Secret's new keys", func(context.Context) error {
		if keys := g.run("cat /root/.ssh/authorized_keys"); strings.TrimSpace(keys) != "ssh-ed25519 BBBB two" {
			return errors.New("root's keys are " + keys)
		}
		return nil
	})
	eventually(t, "the guest to have another password", func(context.Context) error {
		if g.run("grep ^guest: /etc/shadow") == hash {
			return errors.New("it has the first")
		}
		return nil
	})
	g.takes("guest", "another: $x")
}

// takes logs in on the console with a password, and then logs root in again.
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

func synchronized(t *testing.T, namespace, name string, status corev1.ConditionStatus) *v1.VirtualMachineInstanceCondition {
	t.Helper()
	kind := v1.VirtualMachineInstanceAccessCredentialsSynchronized
	vmi := awaitVMI(t, namespace, name, "its credentials to be synchronized: "+string(status), func(vmi *v1.VirtualMachineInstance) bool {
		c := condition.Find(vmi.Status.Conditions, kind)
		return c != nil && c.Status == status
	})
	return condition.Find(vmi.Status.Conditions, kind)
}
