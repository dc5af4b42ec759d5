"""Topics: sentences that show a feature's subject by contrast, and the words a text on it is counted by.

The sentences choose features and are used for nothing else; every measurement runs on other text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Topic:
    """A subject. ``words`` are counted whole, in lower case; a topic without words is a matter of form."""

    name: str
    label: str
    sentences: tuple[str, ...]
    words: frozenset[str] = frozenset()

    def share(self, text: str) -> float:
        """Share of the words of ``text`` that are the topic's."""
        found = re.findall(r"[a-z']+", text.lower())
        return sum(word in self.words for word in found) / max(1, len(found))


def _topic(name: str, label: str, sentences: str, words: str = "") -> Topic:
    lines = tuple(line.strip() for line in sentences.strip().splitlines() if line.strip())
    return Topic(name, label, lines, frozenset(words.split()))


TOPICS = (
    _topic(
        "sea",
        "sea, ships and sailing",
        """
        The ship sailed across the ocean while waves broke over the deck.
        Sailors lowered the anchor in the harbour before the tide turned.
        A fishing boat drifted along the coast under a grey sky.
        The captain steered his vessel through the storm towards the port.
        Seagulls followed the ferry far out to sea.
        Whales and dolphins swam beside the old schooner.
        The lighthouse warned boats away from the rocks on the shore.
        At dawn the crew hoisted the sails and left the bay.
        """,
        """sea seas ocean oceans ship ships boat boats sail sails sailing sailed sailor sailors wave waves shore
        shores coast coastal coastline harbor harbour port ports captain deck anchor tide tides fish
        fishing fisherman fishermen whale whales dolphin dolphins island islands beach beaches vessel
        vessels voyage marine navy naval crew bay dock pier lighthouse underwater coral reef reefs water
        waters seaside maritime swim swimming ferry yacht submarine mast""",
    ),
    _topic(
        "medicine",
        "medicine, illness and doctors",
        """
        The doctor examined the patient and prescribed an antibiotic.
        Nurses in the hospital treated his infection with a new drug.
        Symptoms of the disease include fever, cough and chest pain.
        The surgeon removed the tumour during a long operation.
        Her blood pressure was high, so the clinic changed the dose.
        Vaccines protect children from measles and other illnesses.
        A diagnosis of diabetes requires a blood test.
        The wound healed slowly after the therapy.
        """,
        """doctor doctors patient patients hospital hospitals medicine medicines medical disease diseases illness
        illnesses symptom symptoms treatment treatments treat drug drugs surgery surgeon surgical nurse
        nurses clinic clinical pain infection infections fever cancer tumor tumour blood health
        healthcare therapy diagnosis diagnose diagnosed cure dose medication medications vaccine
        vaccines virus bacteria wound injury injuries heart diabetes physician physicians chronic
        healing heal sick syndrome prescribed antibiotics cells tissue""",
    ),
    _topic(
        "law",
        "law, courts and contracts",
        """
        The judge ruled that the contract was void under the statute.
        Lawyers argued before the jury in the high court.
        The defendant pleaded guilty and was sentenced to prison.
        Parliament passed a law that limits the liability of companies.
        The plaintiff filed an appeal against the verdict.
        A witness testified under oath during the trial.
        The attorney advised her client of his legal rights.
        Courts may grant an injunction to enforce the agreement.
        """,
        """law laws legal court courts judge judges jury trial trials lawyer lawyers attorney attorneys contract
        contracts statute statutes plaintiff defendant guilty verdict sentence sentenced prison crime
        crimes criminal rights appeal justice evidence witness witnesses testimony liability liable
        damages prosecution prosecutor litigation lawsuit claim claims legislation illegal lawful
        unlawful violation offense offence punishment penalty convicted""",
    ),
    _topic(
        "food",
        "food and cooking",
        """
        Chop the onions and fry them in butter until they are golden.
        The soup needs salt, pepper and a little cream.
        She baked bread and a chocolate cake for the guests.
        Boil the pasta, then add tomatoes, garlic and cheese.
        For dinner we had roast chicken with potatoes and salad.
        Mix the flour with eggs and sugar to make a dough.
        The restaurant serves fresh fish, rice and vegetables.
        Ripe fruit tastes sweet in a pie.
        """,
        """food foods eat eating ate meal meals cook cooking cooked recipe recipes bread butter cheese soup salt
        pepper sugar cake cakes chocolate dinner lunch breakfast fruit fruits vegetable vegetables meat
        chicken beef fish rice pasta tomato tomatoes onion onions garlic potato potatoes salad sauce
        flavor flavors flavour taste tastes tasty delicious sweet dish dishes restaurant kitchen chef
        baked bake baking dough flour egg eggs milk cream oil spices ingredients ingredient tea coffee
        wine drink drinks pie pizza dessert""",
    ),
    _topic(
        "money",
        "money, prices and banks",
        """
        The bank raised interest rates on loans and mortgages.
        She invested her savings in shares and earned a profit.
        The price of the house was two hundred thousand dollars.
        Taxes reduce the income of wage earners.
        The company could not pay its debts and went bankrupt.
        Please send the payment for the invoice by cheque.
        Investors sold their bonds when the stock market fell.
        The budget allows a salary of fifty pounds a week.
        """,
        """money bank banks banking price prices pay paid payment payments cost costs tax taxes income profit
        profits loan loans debt debts interest savings save invest invested investing investment
        investments investor investors stock stocks market markets dollar dollars pound pounds cash
        credit financial finance finances budget salary wage wages fund funds funding economic economy
        wealth wealthy rich currency coins purchase buy sell mortgage insurance business revenue sales
        expenses accounting capital trade""",
    ),
    _topic(
        "army",
        "army and war",
        """
        The general ordered his troops to attack the fortress.
        Soldiers fired their rifles across the battlefield.
        The army retreated after losing the battle.
        Tanks and artillery supported the infantry.
        Two divisions invaded the enemy's territory at night.
        The commander surrendered when his weapons ran out.
        Bombs fell on the city during the war.
        The regiment marched to the front under heavy fire.
        """,
        """army armies war wars soldier soldiers battle battles battlefield general troops military enemy enemies
        weapon weapons attack attacks attacked fight fighting fought gun guns rifle rifles tank tanks
        artillery infantry cavalry regiment division commander command victory defeat defeated surrender
        siege fortress fort invasion invaded bomb bombs combat forces defense defence conflict sword
        swords officer officers navy fleet marines armed conquer""",
    ),
    _topic(
        "religion",
        "religion and faith",
        """
        The priest blessed the congregation in the church.
        They prayed to God for mercy and forgiveness of sins.
        Jesus taught his disciples about the kingdom of heaven.
        The prophet spoke the word of the Lord to the people.
        Monks sang psalms in the chapel of the monastery.
        Pilgrims visit the holy temple every year.
        The Bible and the Koran are sacred scriptures.
        Her faith in Christ saved her soul.
        """,
        """god gods lord church churches priest priests prayer prayers pray prayed praying faith holy bible
        scripture scriptures jesus christ christian christians christianity heaven soul souls sin sins
        worship bless blessed blessing religion religious prophet prophets temple sacred divine spirit
        spiritual angel angels gospel salvation mercy disciples apostle apostles saint saints monk monks
        monastery congregation islam muslim koran jewish believers grace resurrection baptism eternal
        theology theological belief beliefs""",
    ),
    _topic(
        "animals",
        "animals",
        """
        The dog chased a cat around the garden.
        Lions hunt zebras and antelopes on the plain.
        A herd of elephants drank at the river.
        The wolf howled while the sheep hid behind the barn.
        Monkeys and parrots live in the tropical forest.
        The horse and the cow grazed in the meadow.
        Rabbits dig burrows where foxes cannot reach them.
        The mouse ran from the owl at night.
        """,
        """animal animals dog dogs cat cats horse horses lion lions tiger tigers elephant elephants wolf wolves
        bear bears sheep cow cows cattle pig pigs bird birds monkey monkeys rabbit rabbits fox foxes
        mouse mice rat rats deer goat goats snake snakes lizard frog frogs owl eagle species wild
        wildlife mammal mammals predator predators prey tail fur paws claws wings feathers puppy kitten
        creature creatures herd zoo insects insect bee bees""",
    ),
    _topic(
        "music",
        "music",
        """
        The orchestra played a symphony by Beethoven.
        She practised the violin and sang in a choir.
        The guitarist wrote a melody with simple chords.
        The band recorded a new album of jazz songs.
        A pianist accompanied the soprano at the concert.
        The drummer kept the rhythm while the bass played.
        The composer finished the opera in three months.
        Dancers moved to the tune of the flute.
        """,
        """music musical musician musicians song songs sing singing sang singer singers melody melodies rhythm
        rhythms band bands orchestra symphony concert concerts violin piano guitar drum drums flute jazz
        rock opera choir chord chords tune tunes album composer composers composed instrument
        instruments dance dancing notes note harmony lyrics bass sound sounds performance beat""",
    ),
    _topic(
        "computing",
        "computers and programs",
        """
        The program reads a file and prints an error message.
        Install the software on the server and restart the computer.
        The function returns a string and takes two arguments.
        A bug in the code caused the database to crash.
        Users log in with a password over the network.
        The compiler translates the source code into machine instructions.
        Click the button to download the application from the website.
        The algorithm sorts the array in memory.
        """,
        """computer computers program programs programming software file files code data database server servers
        function functions string strings user users password network internet website web application
        applications algorithm algorithms memory compiler bug bugs system systems digital device devices
        online download input output variable variables class object objects module modules python
        hardware processor technology interface keyboard screen""",
    ),
    _topic(
        "sadness",
        "sadness and grief",
        """
        She wept alone because her husband had died.
        He felt lonely and miserable after the funeral.
        Tears ran down the child's cheeks.
        The news of his death filled the family with grief.
        I am so sad and have lost all hope.
        They mourned their friend with heavy hearts.
        Despair took hold of the abandoned mother.
        It was a sorrowful farewell for everyone.
        """,
        """sad sadness sorrow sorrowful grief grieve grieving tears tear cry cried crying wept weep weeping lonely
        loneliness alone mourn mourned mourning funeral death died dead loss lost miserable misery
        despair hopeless heartbroken heavy broken pain painful suffering suffer unhappy regret
        melancholy gloom""",
    ),
    _topic(
        "joy",
        "joy and celebration",
        """
        The children laughed with delight at the party.
        We were so happy that we danced all night.
        She smiled cheerfully and hugged her friends.
        Everyone celebrated the wonderful news.
        He was overjoyed to see his sister again.
        It was a merry feast full of laughter.
        The crowd cheered and clapped with joy.
        What a lovely, glorious day this is!
        """,
        """joy joyful happy happiness happily laugh laughed laughing laughter smile smiled smiling delight
        delighted cheer cheerful cheered celebrate celebrated celebration merry glad fun wonderful
        lovely party excited excitement pleasure enjoy enjoyed hug hugged""",
    ),
    _topic(
        "space",
        "space and stars",
        """
        The astronaut looked at the Earth from orbit.
        A telescope showed the rings of Saturn and its moons.
        The rocket carried a satellite into space.
        Stars form from clouds of gas in the galaxy.
        The planet Mars has a thin atmosphere.
        A comet passed close to the sun.
        Astronomers discovered a black hole.
        The lunar eclipse was visible at midnight.
        """,
        """space star stars planet planets moon sun earth galaxy galaxies orbit rocket rockets astronaut astronauts
        telescope telescopes comet comets asteroid mars jupiter saturn solar lunar universe cosmic
        cosmos satellite satellites spacecraft astronomy astronomers astronomer gravity sky""",
    ),
    _topic(
        "plants",
        "plants and gardens",
        """
        The tree has green leaves and white flowers in spring.
        Roses and tulips grow in the garden.
        Its roots take water from the soil.
        The shrub bears small red berries.
        Grass and ferns covered the ground beneath the oaks.
        Farmers sow the seeds of wheat in autumn.
        A genus of herbs with yellow blossoms.
        Pine cones fell from the branches.
        """,
        """plant plants tree trees flower flowers leaf leaves root roots seed seeds grass garden gardens soil
        forest forests branch branches fruit bloom blossom blossoms shrub shrubs herb herbs rose roses
        oak pine grow grows growing""",
    ),
    _topic(
        "weather",
        "weather",
        """
        Heavy rain and strong winds are expected tonight.
        Snow fell all day and the temperature dropped.
        The sky was cloudy before the thunderstorm.
        Fog covered the valley in the morning.
        A hot, dry summer followed the mild winter.
        Lightning struck during the hailstorm.
        The forecast promises sunshine and a breeze.
        Frost formed on the windows.
        """,
        """weather rain rainy rained snow snowy wind winds windy storm storms stormy thunder lightning cloud clouds
        cloudy fog frost ice cold hot warm temperature temperatures sun sunny sunshine summer winter
        climate breeze humid hurricane""",
    ),
    _topic(
        "school",
        "school and learning",
        """
        The teacher gave the pupils homework after the lesson.
        Students study for the examination at the university.
        The professor lectured on history in the classroom.
        She graduated from college with a degree.
        Children learn to read and write in primary school.
        The tutor explained algebra to her class.
        He failed the test and must repeat the course.
        The library helps students to do research.
        """,
        """school schools teacher teachers student students class classes classroom lesson lessons learn learning
        learned study studies studied studying university college education educational exam exams test
        tests professor course courses homework knowledge teach teaching taught academic degree library
        curriculum""",
    ),
    _topic(
        "sport",
        "sport and games",
        """
        The team won the football match by two goals.
        She ran the race in record time and won the medal.
        The player hit the ball over the net.
        The coach trained the athletes for the championship.
        He scored a goal in the last minute of the game.
        The boxer knocked out his opponent in the ring.
        The pitcher threw a fast ball to the batter.
        Fans cheered in the stadium.
        """,
        """sport sports team teams game games player players play played match matches ball goal goals score scored
        win won winner race races coach athlete athletes championship football soccer basketball tennis
        baseball medal stadium competition tournament league training fans""",
    ),
    _topic(
        "family",
        "family",
        """
        My mother and father live with my sister.
        His wife gave birth to a son and a daughter.
        The grandmother told stories to her grandchildren.
        The brothers visited their uncle and aunt.
        Parents love their children.
        She married her cousin's friend and had a baby.
        The husband and wife raised three boys.
        Her nephew lives with his grandfather.
        """,
        """family families mother father sister sisters brother brothers son sons daughter daughters wife husband
        parents parent child children baby grandmother grandfather grandparents grandchildren uncle aunt
        cousin cousins marriage married home love""",
    ),
    _topic(
        "royalty",
        "kings and nobles",
        """
        The king sat upon the throne with his crown.
        The queen ruled the kingdom for forty years.
        The prince married the princess in the palace.
        Knights swore loyalty to their lord.
        The emperor of Rome ruled the provinces.
        The duke and the duchess lived in a castle.
        The royal court honoured the nobles.
        The tsar was the last monarch of the dynasty.
        """,
        """king kings queen queens prince princes princess throne crown kingdom kingdoms royal palace castle knight
        knights emperor empire duke duchess noble nobles nobility monarch monarchy reign ruled ruler
        dynasty court""",
    ),
    _topic(
        "chemistry",
        "chemistry and substances",
        """
        The acid reacts with the metal to form a salt and hydrogen.
        Water is a compound of oxygen and hydrogen.
        Atoms of carbon bond to form molecules.
        The solution was heated until the solvent evaporated.
        Iron rusts when it is oxidised.
        Sodium chloride is a crystalline solid.
        The gas was passed through a catalyst.
        Electrons orbit the nucleus of the atom.
        """,
        """acid acids metal metals hydrogen oxygen carbon compound compounds atom atoms molecule molecules chemical
        chemicals chemistry reaction reactions solution solvent iron sodium gas gases electron electrons
        nucleus element elements crystal liquid solid""",
    ),
    _topic(
        "politics",
        "politics and government",
        """
        The president won the election by a narrow margin.
        Parliament debated the government's new policy.
        The senator voted against the bill.
        Citizens elect representatives to congress.
        The minister resigned after the scandal.
        The party campaigned for democratic reform.
        The governor signed the treaty with the neighbouring state.
        Voters rejected the proposal in a referendum.
        """,
        """government governments president presidents election elections elect elected parliament congress senate
        senator minister party parties vote votes voted voters policy policies political politics
        politician politicians democracy democratic republic citizens state states nation nations
        campaign treaty governor""",
    ),
    _topic(
        "body",
        "parts of the body",
        """
        The bones of the hand are connected by joints.
        Muscles move the arms and the legs.
        The nerve runs from the spine to the foot.
        Her eyes, nose and mouth were covered.
        The artery carries blood from the heart to the lungs.
        He bent his knee and touched his ankle.
        The skin of the neck is thin.
        The skull protects the brain.
        """,
        """body hand hands arm arms leg legs foot feet head eye eyes nose mouth ear ears neck skin bone bones
        muscle muscles nerve nerves brain heart lung lungs knee ankle spine shoulder shoulders finger
        fingers blood skull chest""",
    ),
    _topic(
        "questions",
        "questions",
        """
        What time is it? Where are you going?
        Who told you that? Why did you believe it?
        How much does this cost? Can I pay by card?
        Do you like music? Which song is your favourite?
        When will the train arrive? Is it late?
        Are you hungry? Shall we eat?
        Could you help me? What should I do?
        Have you seen my keys? Did I leave them here?
        """,
    ),
    _topic(
        "lists",
        "lists and bullets",
        """
        1. Apples 2. Pears 3. Plums 4. Cherries
        - red - green - blue - yellow
        * first item * second item * third item
        1. Open the door. 2. Walk in. 3. Sit down.
        - Monday - Tuesday - Wednesday
        1. Read. 2. Write. 3. Repeat.
        * bread * milk * eggs * tea
        a) one b) two c) three d) four
        """,
    ),
    _topic(
        "archaic",
        "archaic English",
        """
        Thou shalt not forsake thy brother, saith he.
        And it came to pass that he went forth unto them.
        Hast thou seen the wonders which he hath wrought?
        Verily I say unto thee, arise and walk.
        Whither goest thou, O daughter of the king?
        Behold, they knew not the ways thereof.
        He that hath ears to hear, let him hearken.
        Ye shall eat bread and be satisfied, and dwell therein.
        """,
        "thou thee thy thine ye hath doth saith unto shalt hast verily behold wherefore thereof therein hither whither",
    ),
)
BY_NAME = {topic.name: topic for topic in TOPICS}

NEUTRAL_SENTENCES = (
    "The meeting was moved to another room because of the noise.",
    "He opened the window and put the box on the table.",
    "Some of them agreed with the idea while others did not.",
    "There are several ways to look at this question.",
    "The report describes what was done and what remains to do.",
    "She walked slowly along the street and turned left.",
    "It is not easy to say which of the two is larger.",
    "They arrived early, waited for an hour and then went home.",
    "The old chair stood in the corner near the door.",
    "Most people think that the colour of the wall matters little.",
    "We talked about the plan and changed a few details.",
    "The number of visitors has grown since last year.",
)

SWEEP_PROMPTS = (
    "Tell me a short story.",
    "Write a few sentences about your day.",
    "Describe a place you like.",
    "What is the most important thing in life?",
)
"""Questions that lean towards no topic; none of them is among the training chats."""
