package virtweb

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// manifests returns the documents of config/web by kind.
func manifests(t *testing.T) map[string][]byte {
	t.Helper()
	text, err := os.ReadFile("../../config/web/web.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]byte{}
	for reader := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(text))); ; {
		part := make([]byte, len(text))
		n, err := reader.Read(part)
		if errors.Is(err, io.EOF) {
			return found
		}
		var meta struct{ Kind string }
		if err := errors.Join(err, yaml.Unmarshal(part[:n], &meta)); err != nil {
			t.Fatal(err)
		}
		if found[meta.Kind] != nil {
			t.Fatalf("there are two of the kind %s", meta.Kind)
		}
		found[meta.Kind] = part[:n]
	}
}

func on(set *bool) bool { return set != nil && *set }

func off(set *bool) bool { return set != nil && !*set }

func read(t *testing.T, kind string, into any) {
	t.Helper()
	text := manifests(t)[kind]
	if err := yaml.UnmarshalStrict(text, into); err != nil || text == nil {
		t.Fatalf("%s: %v", kind, err)
	}
}

func TestThePodOfVirtWebHasNoToken(t *testing.T) {
	var deployment appsv1.Deployment
	var account corev1.ServiceAccount
	read(t, "Deployment", &deployment)
	read(t, "ServiceAccount", &account)
	pod := deployment.Spec.Template.Spec
	if pod.ServiceAccountName != account.Name || !off(account.AutomountServiceAccountToken) || !off(pod.AutomountServiceAccountToken) {
		t.Errorf("a token of %s is in its pod", pod.ServiceAccountName)
	}
	for _, volume := range pod.Volumes {
		if volume.ConfigMap == nil && (volume.Secret == nil || !slices.Contains([]string{"virt-web-tls", "virt-web-session", "virt-web-openid"}, volume.Secret.SecretName)) {
			t.Errorf("its pod has the volume %+v", volume)
		}
	}
}

func TestThePodOfVirtWebIsRestricted(t *testing.T) {
	var deployment appsv1.Deployment
	read(t, "Deployment", &deployment)
	pod := deployment.Spec.Template.Spec
	if pod.HostNetwork || pod.HostPID || pod.HostIPC || len(pod.Containers) != 1 || !on(pod.SecurityContext.RunAsNonRoot) ||
		pod.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("its pod is not of the restricted standard: %+v", pod.SecurityContext)
	}
	limits := pod.Containers[0].SecurityContext
	if !on(limits.ReadOnlyRootFilesystem) || !off(limits.AllowPrivilegeEscalation) || !slices.Equal(limits.Capabilities.Drop, []corev1.Capability{"ALL"}) || limits.Capabilities.Add != nil {
		t.Errorf("its container is not of the restricted standard: %+v", limits)
	}
}

func TestOnlyTheIngressReachesVirtWeb(t *testing.T) {
	var deployment appsv1.Deployment
	var policy networkingv1.NetworkPolicy
	read(t, "Deployment", &deployment)
	read(t, "NetworkPolicy", &policy)
	from := policy.Spec.Ingress
	if len(from) != 1 || len(from[0].From) != 1 || from[0].From[0].NamespaceSelector == nil || from[0].From[0].NamespaceSelector.MatchLabels["drydock.dev/ingress"] != "true" ||
		policy.Spec.PodSelector.MatchLabels["kubevirt.io"] != deployment.Spec.Template.Labels["kubevirt.io"] {
		t.Errorf("others than the Ingress reach it: %+v", policy.Spec)
	}
}

func TestNothingBindsTheAccountOfVirtWeb(t *testing.T) {
	named := regexp.MustCompile(`\bkubevirt-web\b`)
	files, err := filepath.Glob("../../config/*/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no manifests: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(filepath.Dir(file)) != "web" && named.Match(text) {
			t.Errorf("%s names its account", file)
		}
	}
}
