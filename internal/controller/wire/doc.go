// Package wire reads what the API server tells by the watches of custom resources.
//
// Those are JSON, one event a line, and client-go reads each line nine times
// over: to find its end, to see what an event is and to take it apart, to see
// what kind of object is in it, and to take that apart; and a third of it is
// managedFields, which no loop looks at. This package finds the line's end,
// the event's type and the object's kind by what the API server is known to
// write, and the ordinary decoder then reads the object, without managedFields,
// once. Whatever does not look as expected goes the ordinary way.
//
// It must not judge an object nor know a kind: what it gives is what client-go
// would have given, without managedFields.
package wire
