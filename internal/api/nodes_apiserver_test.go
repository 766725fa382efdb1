//go:build apiserver

package api

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/certs"
	"drydock.dev/drydock/internal/certs/nodekey"
	"drydock.dev/drydock/internal/contracts/nodeapi"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

// node plays a virt-handler: with a pod's real token, a certificate that it gets as virt-handler does, and answers that
// repeat the request.
type node struct {
	name  string
	asked chan string
	// as is the virt-handler's account in the API server.
	as *rest.Config
}

// The port is free there whatever else runs.
const nodeIP = "127.0.0.29"

func (w *world) newNode() *node {
	w.t.Helper()
	n := &node{name: "api-test-node", asked: make(chan string, 8)}
	w.newKubernetesNode(n.name)
	n.as = w.tokenOf(w.newHandlerPod(n.name, nodeIP))
	identity := w.keep(w.t, n.as, n.name)
	listener, err := net.Listen("tcp", net.JoinHostPort(nodeIP, strconv.Itoa(nodeapi.Port)))
	must(w.t, err)
	server := &http.Server{Handler: n, ReadHeaderTimeout: time.Minute, TLSConfig: identity.ServerConfig()}
	go func() { _ = server.Serve(tls.NewListener(listener, identity.ServerConfig())) }()
	w.t.Cleanup(func() { _ = server.Close() })
	return n
}

// keep runs virt-handler's code for its certificate until t ends, and waits for the certificate.
func (w *world) keep(t *testing.T, as *rest.Config, nodeName string) *certs.Source {
	t.Helper()
	clientset, err := kubernetes.NewForConfig(as)
	must(t, err)
	identity := certs.NewSource(clientset, certs.HandlerServer())
	keeper := &nodekey.Keeper{
		Node: nodeName, Requests: clientset.CertificatesV1().CertificateSigningRequests(), Holder: identity, Log: testr.New(t),
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- identity.Start(ctx) }()
	go func() { ended <- keeper.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-identity.Ready():
	case <-time.After(5 * time.Minute):
		t.Fatalf("the virt-handler on %s got no certificate", nodeName)
	}
	return identity
}

// The cluster's collector of lost pods would delete the pods of a missing node.
func (w *world) newKubernetesNode(name string) {
	w.t.Helper()
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	must(w.t, client.IgnoreAlreadyExists(w.admin.Create(w.t.Context(), object)))
	w.t.Cleanup(func() {
		if err := w.admin.Delete(context.Background(), object); err != nil {
			w.t.Errorf("removing the node: %v", err)
		}
	})
}

func (w *world) newHandlerPod(nodeName, ip string) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "virt-handler-api-test-", Namespace: clusterconfig.Namespace,
			Labels: map[string]string{v1.AppLabel: "virt-handler"},
		},
		Spec: corev1.PodSpec{NodeName: nodeName, Containers: []corev1.Container{{Name: "a", Image: "a"}},
			ServiceAccountName: clusterconfig.HandlerServiceAccount, AutomountServiceAccountToken: new(false),
			// Nobody marks its node as ready.
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}},
	}
	must(w.t, w.admin.Create(w.t.Context(), pod))
	w.t.Cleanup(func() {
		if err := w.admin.Delete(context.Background(), pod, client.GracePeriodSeconds(0)); err != nil {
			w.t.Errorf("removing the pod: %v", err)
		}
	})
	pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, ip, []corev1.PodIP{{IP: ip}}
	must(w.t, w.admin.Status().Update(w.t.Context(), pod))
	return pod
}

// tokenOf returns the pod's access to the API server.
func (w *world) tokenOf(pod *corev1.Pod) *rest.Config {
	w.t.Helper()
	clientset, err := kubernetes.NewForConfig(w.config)
	must(w.t, err)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	token, err := clientset.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(w.t.Context(), pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	must(w.t, err)
	config := rest.AnonymousClientConfig(w.config)
	config.BearerToken = token.Status.Token
	return config
}
