package disk

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
)

var (
	noCloudKeys     = v1.SSHPublicKeyAccessCredentialPropagationMethod{NoCloud: &v1.NoCloudSSHPublicKeyAccessCredentialPropagation{}}
	configDriveKeys = v1.SSHPublicKeyAccessCredentialPropagationMethod{ConfigDrive: &v1.ConfigDriveSSHPublicKeyAccessCredentialPropagation{}}
)

func sshKeys(secret string, method v1.SSHPublicKeyAccessCredentialPropagationMethod) v1.AccessCredential {
	return v1.AccessCredential{SSHPublicKey: &v1.SSHPublicKeyAccessCredential{
		Source:            v1.SSHPublicKeyAccessCredentialSource{Secret: &v1.AccessCredentialSecretSource{SecretName: secret}},
		PropagationMethod: method,
	}}
}

func TestWhatIsNoKeyStopsTheStart(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		want  string
	}{
		"a private key": {
			map[string]string{"id": "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n"},
			"preparing volume v: the Secret alice has something in id that is no SSH public key",
		},
		"a binary file": {map[string]string{"id": "\xff\xfe"}, "the Secret alice has something in id that is no SSH public key"},
		"more than a Secret holds": {
			map[string]string{"a": strings.Repeat("ssh-rsa A\n", maxFile/10+1)},
			"reading the Secret alice of accessCredentials[0]: the files of /var/run/kubevirt-access-credentials/0 hold more than",
		},
		"too many": {map[string]string{"a": strings.Repeat("ssh-rsa A\n", 513)}, "the Secret alice has more than 512 SSH public keys"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newContainer(t)
			c.kubeletVolume(t, layout.AccessCredentialDir(0), tc.files)
			instance := vmi(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{CloudInitNoCloud: &v1.CloudInitNoCloudSource{UserData: "u"}}})
			instance.Spec.AccessCredentials = []v1.AccessCredential{sshKeys("alice", noCloudKeys)}
			if err := c.carry(t, instance); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error is %v, want %q", err, tc.want)
			}
		})
	}
}

func TestAnswersThatAreMissingStopTheStart(t *testing.T) {
	c := newContainer(t)
	c.kubeletVolume(t, layout.VolumeDir("v"), map[string]string{"answers.xml": "<unattend/>"})
	source := v1.VolumeSource{Sysprep: &v1.SysprepSource{Secret: &corev1.LocalObjectReference{Name: "s"}}}
	err := c.carry(t, vmi(v1.Volume{Name: "v", VolumeSource: source}))
	const want = "preparing volume v: its ConfigMap or Secret has no autounattend.xml or unattend.xml"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v, want %q", err, want)
	}
}

func TestIgnitionIsAFileThatIsMadeOnce(t *testing.T) {
	c := newContainer(t)
	instance := vmi()
	if err := c.carry(t, instance); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(c.real(layout.IgnitionFile())); !os.IsNotExist(err) {
		t.Errorf("without a configuration: %v", err)
	}
	for _, text := range []string{`{"ignition":{}}`, "what it is changed to while the guest runs"} {
		instance.Annotations = map[string]string{v1.IgnitionAnnotation: text}
		if err := c.carry(t, instance); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(c.real(layout.IgnitionFile())); err != nil || string(got) != `{"ignition":{}}` {
		t.Errorf("the file has %q, %v", got, err)
	}
}
