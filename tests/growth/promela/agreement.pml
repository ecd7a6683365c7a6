/* `decide` of ../decisions.star with agree = True: N ranks; one decision each; an agreement on it; one collective.
 *
 * The agreement is a conjunction that is folded as votes come, and the vote is forgotten once it is cast.
 */
byte came, launched;
bool agreed = true;

active [N] proctype rank() {
  bool hit;
  if :: hit = true :: hit = false fi;
  if :: hit :: else fi;
  d_step { agreed = agreed && hit; came++; hit = false };
  came == N;
  d_step { launched++ };
  launched == N
}
