// Package certstest issues virt-handlers' certificates by virt-api's rules, and provides them to a certs.Source as in a
// cluster: the authority comes from the ConfigMap of an API server. Only tests may import it.
package certstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"drydock.dev/drydock/internal/certs"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/cluster/nodecert"
)

// Authority signs the certificates of a test's virt-handlers.
type Authority struct {
	signer *nodecert.Authority
	client kubernetes.Interface
}

// NewAuthority returns an authority that an API server publishes.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	signer, certificate := Signer(t)
	return &Authority{signer: signer, client: publisher(t, string(certificate))}
}

// Signer returns an authority that is not published, and its certificate as PEM.
func Signer(t testing.TB) (signer *nodecert.Authority, certificate []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "virt-handlers of a test"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(10000 * time.Hour), KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	signer, err = nodecert.NewAuthority(certificate, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
	if err != nil {
		t.Fatal(err)
	}
	return signer, certificate
}

func publisher(t testing.TB, authority string) kubernetes.Interface {
	t.Helper()
	published := corev1.ConfigMapList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"},
		Items: []corev1.ConfigMap{{
			ObjectMeta: metav1.ObjectMeta{Namespace: clusterconfig.Namespace, Name: certs.TrustConfigMap, ResourceVersion: "1"},
			Data:       map[string]string{certs.HandlerTrust(): authority},
		}},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch query := r.URL.Query(); {
		case query.Get("sendInitialEvents") != "":
			w.WriteHeader(http.StatusUnprocessableEntity)
			_ = json.NewEncoder(w).Encode(metav1.Status{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity,
				Reason: metav1.StatusReasonInvalid, Message: "this API server lists before it watches",
			})
		case query.Get("watch") != "":
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		default:
			_ = json.NewEncoder(w).Encode(published)
		}
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Certificate issues the certificate of a node's virt-handler.
func (a *Authority) Certificate(t testing.TB, node string) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request, err := nodecert.New(node, key, nodecert.ServerAndClient)
	if err != nil {
		t.Fatal(err)
	}
	request.Spec.Username = nodecert.Account
	request.Spec.Extra = map[string]certificatesv1.ExtraValue{
		"authentication.kubernetes.io/node-name": {node}, "authentication.kubernetes.io/pod-uid": {"u"},
	}
	grant, err := nodecert.Check(request)
	if err != nil {
		t.Fatal(err)
	}
	text, err := a.signer.Sign(grant, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: key, Leaf: leaf}
}

// Handler returns a Source of a node's virt-handler that runs until the test ends.
func (a *Authority) Handler(t testing.TB, node string) *certs.Source {
	t.Helper()
	source := certs.NewSource(a.client, certs.HandlerServer())
	known := make(chan struct{}, 1)
	source.OnChange(func() {
		select {
		case known <- struct{}{}:
		default:
		}
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = source.Start(t.Context())
	}()
	t.Cleanup(func() { <-ended })
	for timeout := time.After(time.Minute); source.OwnAuthorities() == nil; {
		select {
		case <-known:
		case <-timeout:
			t.Fatal("the authority of virt-handlers is not heard of")
		}
	}
	source.Use(a.Certificate(t, node))
	return source
}
