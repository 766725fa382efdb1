//go:build apiserver

package controller

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// controllerPolicy applies config/rbac/controller-policy.yaml to the loops of all worlds, whose accounts are in the
// worlds' namespaces: the policy must allow every write of virt-controller in these tests.
func controllerPolicy(c client.Client) (remove func() error, err error) {
	ctx := context.Background()
	objects, err := readManifest(controllerPolicies,
		`request.userInfo.username == "system:serviceaccount:kubevirt:kubevirt-controller"`, `request.userInfo.username.endsWith(":kubevirt-controller")`)
	if err != nil {
		return nil, err
	}
	remove = func() error {
		for _, object := range objects {
			if err := c.Delete(ctx, object.DeepCopy()); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("deleting the policy %s: %w", object.GetName(), err)
			}
		}
		return nil
	}
	for _, object := range objects {
		object.SetName("test-" + object.GetName())
		if object.GetKind() == "ValidatingAdmissionPolicyBinding" {
			if err := unstructured.SetNestedField(object.Object, object.GetName(), "spec", "policyName"); err != nil {
				return nil, fmt.Errorf("binding the policy: %w", err)
			}
		}
		if err := c.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("making the policy %s: %w", object.GetName(), err)
		}
	}
	return remove, nil
}

func TestAVirtControllerThatIsTakenOverMakesNoPodOfItsChoice(t *testing.T) {
	w := newWorld(t)
	loops, err := client.New(w.config, client.Options{Scheme: newScheme()})
	w.do("making a client", err)
	free := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "free", Namespace: w.namespace}}
	free.Spec.Containers = []corev1.Container{{Name: "c", Image: "evil"}}
	w.eventually("the policy to be in force", func() (bool, string) {
		err := loops.Create(w.ctx, free.DeepCopy(), client.DryRunAll)
		return apierrors.IsInvalid(err) && strings.Contains(err.Error(), "only Drydock's pods"), fmt.Sprint(err)
	})
	w.createVMI("vmi")
	real := w.awaitLauncher("vmi")
	for what, edit := range map[string]func(*corev1.Pod){
		"on the node's network": func(p *corev1.Pod) { p.Spec.HostNetwork = true },
		"privileged":            func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext.Privileged = new(true) },
		"with a token":          func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = nil },
	} {
		forged := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "forged", Namespace: w.namespace, Labels: real.Labels}, Spec: *real.Spec.DeepCopy()}
		forged.Spec.NodeName = ""
		edit(forged)
		if err := loops.Create(w.ctx, forged, client.DryRunAll); !apierrors.IsInvalid(err) {
			t.Errorf("a launcher pod %s is answered %v", what, err)
		}
	}
	token := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "token", Namespace: w.namespace,
		Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}}, Type: corev1.SecretTypeServiceAccountToken}
	w.eventually("a Secret with a service account's token to be refused, which is another policy", func() (bool, string) {
		err := loops.Create(w.ctx, token, client.DryRunAll)
		return apierrors.IsInvalid(err), fmt.Sprint(err)
	})
}

func TestAVirtControllerThatIsTakenOverRunsNothingAsVirtHandler(t *testing.T) {
	w := newWorld(t)
	loops, err := client.New(w.config, client.Options{Scheme: newScheme()})
	w.do("making a client", err)
	w.deploy(nil)
	patch := func(spec string) error {
		text := `{"spec":{"template":{"spec":` + spec + `}}}`
		return loops.Patch(w.ctx, w.handlerDaemonSet(), client.RawPatch(types.StrategicMergePatchType, []byte(text)), client.DryRunAll)
	}
	evil := `{"containers":[{"name":"virt-handler","image":"example.com/mine:1"}]}`
	w.eventually("the policy to be in force", func() (bool, string) {
		err := patch(evil)
		return apierrors.IsInvalid(err) && strings.Contains(err.Error(), "no image, command, user or volume"), fmt.Sprint(err)
	})
	for what, spec := range map[string]string{
		"with another command":        `{"containers":[{"name":"virt-handler","command":["sh"]}]}`,
		"with an argument":            `{"containers":[{"name":"virt-handler","args":["--kubelet-dir=/x"]}]}`,
		"with a container more":       `{"initContainers":[{"name":"a","image":"example.com/mine:1"}]}`,
		"with the network of a node":  `{"hostNetwork":true}`,
		"with another folder of it":   `{"volumes":[{"name":"kubelet","hostPath":{"path":"/"}}]}`,
		"with another account's name": `{"serviceAccountName":"default"}`,
	} {
		if err := patch(spec); !apierrors.IsInvalid(err) {
			t.Errorf("virt-handler %s is answered %v", what, err)
		}
	}
	if err := patch(`{"containers":[{"name":"virt-handler","resources":{"requests":{"memory":"96Mi"}}}]}`); err != nil {
		t.Errorf("what the KubeVirt object can say is answered %v", err)
	}
}
