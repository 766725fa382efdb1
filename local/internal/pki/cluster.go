package pki

import (
	"fmt"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"drydock.dev/local/internal/layout"
	"drydock.dev/local/internal/render"
)

// Users of the API server. The names are those that Kubernetes' own RBAC
// bootstrap and its node authorizer know.
const (
	controllerManager = "system:kube-controller-manager"
	scheduler         = "system:kube-scheduler"
	proxy             = "system:kube-proxy"
)

// Ensure makes all certificates and kubeconfigs of a cluster. Authorities and
// the key of service account tokens stay; everything else is made anew.
func Ensure(c layout.Cluster) error {
	ca, err := LoadAuthority("drydock-ca", c.PKI("ca.crt"), c.PKI("ca.key"))
	if err != nil {
		return err
	}
	front, err := LoadAuthority("drydock-front-proxy-ca", c.PKI("front-proxy-ca.crt"), c.PKI("front-proxy-ca.key"))
	if err != nil {
		return err
	}
	// Tokens of service accounts are signed with the key of an authority that signs nothing else.
	if _, err := LoadAuthority("drydock-service-accounts", c.PKI("sa.crt"), c.PKI("sa.key")); err != nil {
		return err
	}
	if err := front.SignTo(Leaf{Name: "front-proxy-client"}, c.PKI("front-proxy-client.crt"), c.PKI("front-proxy-client.key")); err != nil {
		return err
	}
	for file, leaf := range leaves(c) {
		if err := ca.SignTo(leaf, c.PKI(file+".crt"), c.PKI(file+".key")); err != nil {
			return err
		}
	}
	for file, leaf := range users(c) {
		if err := writeKubeconfig(c, ca, leaf, file); err != nil {
			return err
		}
	}
	return nil
}

func leaves(c layout.Cluster) map[string]Leaf {
	host := c.HostIP().String()
	all := map[string]Leaf{
		"etcd": {Name: "etcd", Hosts: []string{host}},
		"apiserver": {Name: "kube-apiserver", Hosts: []string{
			host, c.KubernetesIP().String(), "localhost", "kubernetes", "kubernetes.default",
			"kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		}},
		"apiserver-etcd-client":    {Name: "kube-apiserver"},
		"apiserver-kubelet-client": {Name: "kube-apiserver-kubelet-client", Groups: []string{"system:masters"}},
	}
	for _, node := range c.Nodes {
		all["kubelet-"+node] = Leaf{Name: "system:node:" + node, Groups: []string{"system:nodes"}, Hosts: []string{node, c.NodeIP(node).String()}}
	}
	return all
}

// users maps each kubeconfig to the certificate that it carries.
func users(c layout.Cluster) map[string]Leaf {
	all := map[string]Leaf{
		c.Kubeconfig(): {Name: "drydock-admin", Groups: []string{"system:masters"}},
		c.Config("controller-manager.kubeconfig"): {Name: controllerManager},
		c.Config("scheduler.kubeconfig"):          {Name: scheduler},
		c.Config("proxy.kubeconfig"):              {Name: proxy},
		c.Config("storage.kubeconfig"):            {Name: render.StorageUser},
	}
	for _, node := range c.Nodes {
		all[c.Config("kubelet-"+node+".kubeconfig")] = Leaf{Name: "system:node:" + node, Groups: []string{"system:nodes"}}
	}
	return all
}

func writeKubeconfig(c layout.Cluster, ca *Authority, leaf Leaf, file string) error {
	pair, err := ca.Sign(leaf)
	if err != nil {
		return err
	}
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters[c.Name] = &clientcmdapi.Cluster{Server: c.APIServer(), CertificateAuthorityData: ca.PEM}
	cfg.AuthInfos[leaf.Name] = &clientcmdapi.AuthInfo{ClientCertificateData: pair.Cert, ClientKeyData: pair.Key}
	cfg.Contexts[c.Name] = &clientcmdapi.Context{Cluster: c.Name, AuthInfo: leaf.Name}
	cfg.CurrentContext = c.Name
	data, err := clientcmd.Write(*cfg)
	if err != nil {
		return fmt.Errorf("encoding the kubeconfig of %s: %w", leaf.Name, err)
	}
	return layout.WriteFile(file, data, os.FileMode(0o600))
}
