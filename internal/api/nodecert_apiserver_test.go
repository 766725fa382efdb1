//go:build apiserver

package api

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"drydock.dev/drydock/internal/api/admission"
	"drydock.dev/drydock/internal/certs"
	"drydock.dev/drydock/internal/certs/nodesigner"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/cluster/nodecert"
)

// An earlier version kept the key of all virt-handlers there.
const sharedSecret = "kubevirt-virt-handler-server-certs"

// With a virt-handler's token and key, an attacker must be that node and no other.
func (w *world) nodeCertificates(t *testing.T) {
	w.newKubernetesNode("api-test-other")
	t.Run("its own is good for its own guests", w.ownNode)
	t.Run("it does not answer for another node", w.impostor)
	t.Run("virt-api refuses what is not proven", w.forgedRequests)
	t.Run("a restarted virt-handler gets a new one", w.restartedHandler)
	t.Run("keys of authorities are out of its reach", w.secretsOfHandler)
	t.Run("nothing is left of the shared key", w.sharedKey)
	t.Run("the API server refuses requests in the name of others", w.requestPolicy)
}

func (w *world) ownNode(t *testing.T) {
	w.running(t, "own-guest")
	_, err := w.call(http.MethodPut, w.subresource("virtualmachineinstances", "own-guest", "pause"), "{}")
	must(t, err)
	<-w.node.asked
	w.eventually(t, "its request is gone", func() error {
		err := w.admin.Get(t.Context(), client.ObjectKey{Name: nodecert.RequestName(w.node.name)}, &certificatesv1.CertificateSigningRequest{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return context.DeadlineExceeded
	})
}

// impostor redirects the connections for another node to the attacked one.
func (w *world) impostor(t *testing.T) {
	w.newHandlerPod("api-test-other", nodeIP)
	vmi := w.vmi("elsewhere")
	must(t, w.admin.Create(t.Context(), vmi))
	before := vmi.DeepCopy()
	vmi.Status.Phase, vmi.Status.NodeName = v1.Running, "api-test-other"
	must(t, w.component(admission.HandlerServiceAccount).Patch(t.Context(), vmi, client.MergeFrom(before)))
	want := "the certificate of api-test-other.virt-handler.kubevirt.svc is not accepted"
	w.eventually(t, "virt-api knows the pod of the other node", func() error {
		_, err := w.call(http.MethodPut, w.subresource("virtualmachineinstances", "elsewhere", "pause"), "{}")
		if err == nil {
			t.Fatal("a node answers for another")
		}
		if !strings.Contains(sentence(err), want) {
			return err
		}
		return nil
	})
	select {
	case asked := <-w.node.asked:
		t.Errorf("another node was asked %s", asked)
	default:
	}
}

// request makes a request as an account; change forges it.
func (w *world) request(t *testing.T, as *rest.Config, node string, change func(*certificatesv1.CertificateSigningRequest)) (*certificatesv1.CertificateSigningRequest, error) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	request, err := nodecert.New(node, key, nodecert.ServerAndClient)
	must(t, err)
	change(request)
	clientset, err := kubernetes.NewForConfig(as)
	must(t, err)
	made, err := clientset.CertificatesV1().CertificateSigningRequests().Create(t.Context(), request, metav1.CreateOptions{})
	if err == nil {
		t.Cleanup(func() {
			if err := w.admin.Delete(context.Background(), made); client.IgnoreNotFound(err) != nil {
				t.Errorf("removing the request: %v", err)
			}
		})
	}
	return made, err
}

func unchanged(*certificatesv1.CertificateSigningRequest) {}

func named(name string) func(*certificatesv1.CertificateSigningRequest) {
	return func(r *certificatesv1.CertificateSigningRequest) { r.Name = name }
}

// forgedRequests are made without the policy, because virt-api must not depend on it.
func (w *world) forgedRequests(t *testing.T) {
	mine := nodecert.RequestName(w.node.name)
	for _, forged := range []struct {
		what, node string
		as         *rest.Config
		change     func(*certificatesv1.CertificateSigningRequest)
		refused    string
	}{
		{"a node asks for another's", "api-test-other", w.node.as, unchanged, "must be named " + mine},
		{"a node asks for another's under its own name", "api-test-other", w.node.as, named(mine), "may have the name api-test-node.virt-handler"},
		{"an administrator asks", w.node.name, w.config, unchanged, "only system:serviceaccount:kubevirt:kubevirt-handler may ask"},
		{"virt-handler's account without a pod asks", w.node.name, w.impersonated(nil), unchanged, "not bound to a pod"},
	} {
		t.Run(forged.what, func(t *testing.T) {
			made, err := w.request(t, forged.as, forged.node, forged.change)
			must(t, err)
			w.awaitCondition(t, made, certificatesv1.CertificateDenied, forged.refused)
		})
	}
}

// approvedBefore approves requests while virt-api is down: as virt-api before its end, or as a user who may approve
// anything. The signer must check them. It runs alone, because a process has one virt-api.
func (w *world) approvedBefore(t *testing.T) {
	w.stop()
	must(t, w.admin.Delete(t.Context(), w.policy))
	approved := func(node string) *certificatesv1.CertificateSigningRequest {
		var made *certificatesv1.CertificateSigningRequest
		w.eventually(t, "the policy is gone", func() (err error) {
			made, err = w.request(t, w.node.as, node, unchanged)
			return err
		})
		made.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Before", Message: "before virt-api ended",
		}}
		must(t, w.admin.SubResource("approval").Update(t.Context(), made))
		return made
	}
	good, forged := approved(w.node.name), approved("api-test-other")
	w.signAlone(t)
	w.awaitCondition(t, forged, certificatesv1.CertificateFailed, "must be named "+nodecert.RequestName(w.node.name))
	w.eventually(t, "what was approved is signed", func() error {
		if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(good), good); err != nil {
			return err
		}
		if len(good.Status.Certificate) == 0 {
			return context.DeadlineExceeded
		}
		return nil
	})
}

// signAlone runs the signer with virt-api's rights until t ends.
func (w *world) signAlone(t *testing.T) {
	cluster, err := clientcmd.BuildConfigFromFlags("", w.kubeconfig)
	must(t, err)
	namespace := map[string]cache.Config{clusterconfig.Namespace: {}}
	mgr, err := ctrl.NewManager(cluster, ctrl.Options{
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}: {Namespaces: namespace}, &corev1.ConfigMap{}: {Namespaces: namespace},
			&certificatesv1.CertificateSigningRequest{}: nodesigner.Cached(),
		}},
	})
	must(t, err)
	must(t, nodesigner.Add(mgr))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the signer ended with: %v", err)
		}
	})
}

// impersonated returns virt-handler's account with the API server's facts about a token.
func (w *world) impersonated(extra map[string][]string) *rest.Config {
	config := rest.CopyConfig(w.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: nodecert.Account, Groups: []string{"system:authenticated"}, Extra: extra}
	return config
}

func (w *world) awaitCondition(t *testing.T, made *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType, message string) {
	t.Helper()
	now := &certificatesv1.CertificateSigningRequest{}
	w.eventually(t, "the request is "+string(kind), func() error {
		if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(made), now); err != nil {
			return err
		}
		if !slices.ContainsFunc(now.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool { return c.Type == kind }) {
			return context.DeadlineExceeded
		}
		return nil
	})
	last := now.Status.Conditions[len(now.Status.Conditions)-1]
	if !strings.Contains(last.Message, message) || len(now.Status.Certificate) > 0 {
		t.Errorf("the request is %s: %q, want %q; %d bytes of certificate", last.Type, last.Message, message, len(now.Status.Certificate))
	}
}

// restartedHandler finds the request that its predecessor has left.
func (w *world) restartedHandler(t *testing.T) {
	left, err := w.request(t, w.node.as, w.node.name, unchanged)
	must(t, err)
	w.keep(t, w.node.as, w.node.name)
	w.eventually(t, "the predecessor's request is gone", func() error {
		now := &certificatesv1.CertificateSigningRequest{}
		err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(left), now)
		if apierrors.IsNotFound(err) || err == nil && now.UID != left.UID {
			return nil
		}
		return context.DeadlineExceeded
	})
}

func (w *world) secretsOfHandler(t *testing.T) {
	clientset, err := kubernetes.NewForConfig(w.node.as)
	must(t, err)
	secrets := clientset.CoreV1().Secrets(clusterconfig.Namespace)
	for _, name := range []string{certs.HandlerAuthoritySecret, certs.HandlerClientSecret, certs.APISecret, certs.UploadSecret, sharedSecret} {
		if _, err := secrets.Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("virt-handler reads the Secret %s: %v", name, err)
		}
	}
	if _, err := secrets.List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("virt-handler lists Secrets: %v", err)
	}
	if _, err := secrets.Watch(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("virt-handler watches Secrets: %v", err)
	}
}

// sharedKey checks the state of the Secret from install.
func (w *world) sharedKey(t *testing.T) {
	w.eventually(t, "the Secret is gone", func() error {
		err := w.admin.Get(t.Context(), client.ObjectKey{Namespace: clusterconfig.Namespace, Name: sharedSecret}, &corev1.Secret{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return context.DeadlineExceeded
	})
	w.eventually(t, "nobody trusts its authority", func() error {
		trusted := &corev1.ConfigMap{}
		if err := w.admin.Get(t.Context(), client.ObjectKey{Namespace: clusterconfig.Namespace, Name: certs.TrustConfigMap}, trusted); err != nil {
			return err
		}
		if _, there := trusted.Data[sharedSecret+".crt"]; there {
			return context.DeadlineExceeded
		}
		return nil
	})
}

// A request that virt-api would refuse must not even be created.
func (w *world) requestPolicy(t *testing.T) {
	for _, object := range manifests(t, "../../config/rbac/handler-policy.yaml") {
		if object.GetName() != "virt-handler-certificates" {
			continue
		}
		w.apply(object)
		if object.GetKind() == "ValidatingAdmissionPolicyBinding" {
			w.policy = object
		}
	}
	w.eventually(t, "the policy is in force", func() error {
		made, err := w.request(t, w.config, "api-test-other", unchanged)
		if err == nil {
			must(t, client.IgnoreNotFound(w.admin.Delete(t.Context(), made)))
			return context.DeadlineExceeded
		}
		if !strings.Contains(err.Error(), "only virt-handler may ask") {
			return err
		}
		return nil
	})
	for what, test := range map[string]struct {
		as      *rest.Config
		node    string
		change  func(*certificatesv1.CertificateSigningRequest)
		refused string
	}{
		"an administrator":         {w.config, "api-test-other", unchanged, "only virt-handler may ask"},
		"another node":             {w.node.as, "api-test-other", unchanged, "of its own node"},
		"a name of its own choice": {w.node.as, w.node.name, named("csr-1"), "of its own node"},
		"another signer": {w.node.as, w.node.name, func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.SignerName = certificatesv1.KubeAPIServerClientKubeletSignerName
		}, "no other signer"},
	} {
		if _, err := w.request(t, test.as, test.node, test.change); err == nil || !strings.Contains(err.Error(), test.refused) {
			t.Errorf("%s: %v, want %q", what, err, test.refused)
		}
	}
	w.keep(t, w.node.as, w.node.name)
	foreign, err := w.request(t, w.config, "api-test-other", func(r *certificatesv1.CertificateSigningRequest) {
		r.Name, r.Spec.SignerName = "somebody-elses", "example.com/signer"
	})
	must(t, err)
	clientset, err := kubernetes.NewForConfig(w.node.as)
	must(t, err)
	err = clientset.CertificatesV1().CertificateSigningRequests().Delete(t.Context(), foreign.Name, metav1.DeleteOptions{})
	if err == nil || !strings.Contains(err.Error(), "of its own node") {
		t.Errorf("virt-handler deletes somebody else's request: %v", err)
	}
}
