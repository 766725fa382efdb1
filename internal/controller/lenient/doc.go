// Package lenient decodes lists and watches of custom resources object by object, so that one undecodable object
// stops no loop.
//
// client-go decodes a whole list into Go types, and fails if one value does not fit: a time such as
// "2026-01-01 00:00:00" is valid by some definitions, and Go does not parse it. The informer of that kind then never
// starts: a user with one object could stop virt-controller for the whole cluster.
//
// Here an undecodable object counts as missing: a list omits it, a watch reports it as deleted, and it appears when it can
// be decoded. Each one is logged. That is safe because the loops don't rely on a cache where it matters: the API server
// refuses a second object of that name, and a read fails with an error that is retried.
//
// client-go's own serializer decodes each object: another decoder saved less than 1 ms of a VMI's life. The package must
// not judge an object nor know a kind. See decision 224.
package lenient
